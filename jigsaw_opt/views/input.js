// Pointer, wheel and keys; what is shown stands in the address.
// What is shown stands in the address, so that a link opens it again. A page inside a page has no address.
let later = 0;
function keep() {
  if (location.protocol === "about:") return;
  clearTimeout(later);
  later = setTimeout(() => {
    const parts = [Math.round(view.from), Math.round(view.to), Math.round(view.top / row), view.job ?? ""];
    history.replaceState(null, "", "#" + parts.join(","));
  }, 300);
}
function reopen() {
  const parts = location.hash.slice(1).split(",");
  if (parts.length !== 4 || !parts.slice(0, 3).every(it => /^\d+$/.test(it))) return;
  clampView(+parts[0], +parts[1]);
  if (parts[3] !== "" && data.jobs[parts[3]]) highlight(+parts[3]);
  draw();
  view.top = +parts[2] * row;
}

let grip = null;
canvas.addEventListener("pointerdown", e => {
  const box = canvas.getBoundingClientRect(), at = e.shiftKey ? snapped(e.clientX - box.left, e.clientY - box.top) : null;
  if (at !== null) view.measure = [at, at];
  grip = { measuring: at !== null, x: e.clientX, y: e.clientY, from: view.from, to: view.to, top: view.top, moved: false };
  canvas.setPointerCapture(e.pointerId);
});
canvas.addEventListener("pointermove", e => {
  if (!grip) { hover(e); return; }
  if (Math.abs(e.clientX - grip.x) + Math.abs(e.clientY - grip.y) > 3) grip.moved = true;
  if (grip.measuring) {
    const box = canvas.getBoundingClientRect();
    view.measure[1] = snapped(e.clientX - box.left, e.clientY - box.top);
    say(measured()); redraw();
    return;
  }
  const shift = (grip.x - e.clientX) * perPixel();
  clampView(grip.from + shift, grip.to + shift); view.top = grip.top + grip.y - e.clientY;
  canvas.classList.add("drag"); tip.style.display = "none"; redraw();
});
canvas.addEventListener("pointerup", e => {
  const clicked = grip && !grip.moved && !grip.measuring, box = canvas.getBoundingClientRect();
  grip = null; canvas.classList.remove("drag");
  if (!clicked) return;
  const group = rowAt(e.clientY - box.top)?.group, hit = under(e.clientX - box.left, e.clientY - box.top);
  if (group) toggle(group);
  else highlight(hit && hit[0].kind !== "memory" ? hit[1][JOB] : view.job);
});
canvas.addEventListener("pointerleave", () => { tip.style.display = "none"; view.hover = null; redraw(); });
canvas.addEventListener("wheel", e => {
  e.preventDefault();
  const box = canvas.getBoundingClientRect();
  if (e.shiftKey) { view.top += e.deltaY || e.deltaX; redraw(); }
  else zoom(Math.exp(Math.max(-0.7, Math.min(0.7, e.deltaY * 0.0016))), e.clientX - box.left);
}, { passive: false });
canvas.addEventListener("dblclick", showAll);
addEventListener("keydown", e => {
  if (["INPUT", "SELECT"].includes(e.target.tagName) || $("keys").open || e.ctrlKey || e.metaKey || e.altKey) return;
  const step = (view.to - view.from) / 8;
  const act = { "+": () => zoom(0.6), "=": () => zoom(0.6), "-": () => zoom(1 / 0.6), "0": showAll, "?": () => $("keys").showModal(), "/": () => $("find").focus(), Escape: () => { hideChain(); view.measure = null; showAlone(null); highlight(view.job); },
    c: showChain, g: foldNext, f: () => showAlone(view.only === null ? view.job : null), m: measureHere,
    ArrowLeft: () => clampView(view.from - step, view.to - step), ArrowRight: () => clampView(view.from + step, view.to + step),
    ArrowUp: () => { view.top -= 3 * row; }, ArrowDown: () => { view.top += 3 * row; } }[e.key];
  if (act) { act(); redraw(); e.preventDefault(); }
});
$("in").onclick = () => zoom(0.6); $("out").onclick = () => zoom(1 / 0.6); $("all").onclick = showAll;
$("help").onclick = () => $("keys").showModal();
$("fold").onclick = foldNext;
function saved(picture, ending) {
  const link = element("a", "", { download: data.name.replace(/[^\w.-]+/g, "_") + ending });
  link.setAttribute("href", URL.createObjectURL(picture)); link.click();
}
$("png").hidden = $("svg").hidden = location.protocol === "about:"; // A page inside a page may not download.
$("png").onclick = () => canvas.toBlob(picture => saved(picture, ".png"));
$("svg").onclick = () => saved(new Blob([asSvg()], { type: "image/svg+xml" }), ".svg");
