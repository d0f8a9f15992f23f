// The whole time on one strip: how many GPUs are busy, and the window that is shown below.
const strip = $("overview"), brush = strip.getContext("2d");
let parts = null;

function drawOverview(paint) {
  const scale = devicePixelRatio || 1, wide = strip.clientWidth, high = strip.clientHeight;
  strip.width = Math.round(wide * scale); strip.height = Math.round(high * scale);
  brush.setTransform(scale, 0, 0, scale, 0, 0);
  const room = Math.max(1, wide - left), count = Math.max(1, Math.floor(room / 2));
  if (!parts || parts.length !== count) parts = busyParts(gpus, 0, end, count);
  brush.fillStyle = paint.paper; brush.fillRect(0, 0, wide, high);
  brush.fillStyle = paint.hole; brush.fillRect(left, 0, room, high);
  brush.fillStyle = paint.dim;
  area(brush, parts, left, 0, room, high);
  const a = left + room * view.from / end, b = left + room * view.to / end;
  brush.fillStyle = paint.paper; brush.globalAlpha = 0.6;
  brush.fillRect(left, 0, a - left, high); brush.fillRect(b, 0, wide - b, high);
  brush.globalAlpha = 1; brush.strokeStyle = paint.accent; brush.lineWidth = 2;
  brush.strokeRect(a + 1, 1, Math.max(2, b - a - 2), high - 2);
  brush.fillStyle = paint.dim; brush.font = "12px system-ui, sans-serif"; brush.textBaseline = "middle";
  brush.fillText("GPUs busy", 10, high / 2, left - 54);
  brush.textAlign = "right"; brush.fillText(Math.round(100 * busy) + " %", left - 8, high / 2); brush.textAlign = "left";
}

// Drag the window, or an edge of it; a click elsewhere brings it there.
let held = null;
const overviewTime = e => (e.clientX - strip.getBoundingClientRect().left - left) / Math.max(1, strip.clientWidth - left) * end;
strip.addEventListener("pointerdown", e => {
  const at = overviewTime(e), near = 6 * end / Math.max(1, strip.clientWidth - left), length = view.to - view.from;
  const edge = Math.abs(at - view.from) < near ? "from" : Math.abs(at - view.to) < near ? "to" : null;
  if (!edge && (at < view.from || at > view.to)) clampView(at - length / 2, at + length / 2);
  held = { at, edge, from: view.from, to: view.to };
  strip.setPointerCapture(e.pointerId); redraw();
});
strip.addEventListener("pointermove", e => {
  if (!held) return;
  const shift = overviewTime(e) - held.at;
  clampView(held.edge === "to" ? held.from : held.from + shift, held.edge === "from" ? held.to : held.to + shift); redraw();
});
strip.addEventListener("pointerup", () => { held = null; });
