// What is drawn, as SVG: a pen with the few strokes of a canvas that the timeline uses.
class SvgPen {
  constructor(wide, high, canvasPen) { Object.assign(this, { wide, high, canvasPen, parts: [], globalAlpha: 1, dash: [], path: "" }); }
  add(tag, places, text = "") {
    const escaped = it => String(it).replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll('"', "&quot;");
    const all = { ...places, ...(this.globalAlpha < 1 ? { opacity: this.globalAlpha } : {}) };
    this.parts.push(`<${tag} ${Object.entries(all).map(([name, value]) => `${name}="${escaped(typeof value === "number" ? +value.toFixed(2) : value)}"`).join(" ")}>${escaped(text)}</${tag}>`);
  }
  fillRect(left, top, width, height) { if (width > 0 && height > 0) this.add("rect", { x: left, y: top, width, height, fill: this.fillStyle }); }
  strokeRect(left, top, width, height) { if (width > 0 && height > 0) this.add("rect", { x: left, y: top, width, height, fill: "none", stroke: this.strokeStyle, "stroke-width": this.lineWidth }); }
  fillText(text, left, top, most) {
    const anchor = { left: "start", center: "middle", right: "end" }[this.textAlign] ?? "start";
    const base = { middle: "central", bottom: "text-after-edge" }[this.textBaseline] ?? "auto";
    const fit = most !== undefined && this.measureText(text).width > most ? { textLength: most, lengthAdjust: "spacingAndGlyphs" } : {};
    this.add("text", { x: left, y: top, fill: this.fillStyle, "text-anchor": anchor, "dominant-baseline": base, ...fit }, text);
  }
  measureText(text) { return this.canvasPen.measureText(text); }
  beginPath() { this.path = ""; }
  moveTo(left, top) { this.path += `M${left.toFixed(2)} ${top.toFixed(2)}`; }
  lineTo(left, top) { this.path += `L${left.toFixed(2)} ${top.toFixed(2)}`; }
  stroke() { this.add("path", { d: this.path, fill: "none", stroke: this.strokeStyle, "stroke-width": this.lineWidth, ...(this.dash.length ? { "stroke-dasharray": this.dash.join(" ") } : {}) }); }
  fill() { this.add("path", { d: this.path + "Z", fill: this.fillStyle }); }
  setLineDash(dash) { this.dash = dash; }
  rect(left, top, width, height) { this.box = { left, top, width, height }; }
  // A drawing inside a drawing shows nothing outside its box.
  clip() { const { left, top, width, height } = this.box; this.parts.push(`<svg x="${left}" y="${top}" width="${width}" height="${height}" viewBox="${left} ${top} ${width} ${height}">`); }
  save() { }
  restore() { this.parts.push("</svg>"); }
  setTransform() { }
  get text() {
    return `<svg xmlns="${SVG}" width="${this.wide}" height="${this.high}" viewBox="0 0 ${this.wide} ${this.high}" font-family="system-ui, sans-serif" font-size="12">${this.parts.join("\n")}</svg>\n`;
  }
}
const SVG = new DOMParser().parseFromString("<svg/>", "text/html").querySelector("svg").namespaceURI;
function asSvg() {
  const drawing = pen;
  pen = new SvgPen(width, height, drawing);
  try { draw(); return pen.text; } finally { pen = drawing; draw(); }
}
