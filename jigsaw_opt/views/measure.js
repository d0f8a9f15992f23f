// Measuring: from one moment to another, each at the edge of a block where one is near.
function snapped(px, py) {
  const row = rowAt(py), at = time(px), near = 6 * perPixel();
  if (!row || !row.lane) return at;
  let best = at, least = near;
  const all = row.lane.intervals;
  for (let k = firstReaching(all, at - row.lane.longest - near); k < all.length && all[k][START] <= at + near; k++)
    for (const edge of [all[k][START], all[k][END]]) if (Math.abs(edge - at) <= least) { best = edge; least = Math.abs(edge - at); }
  return best;
}
function measured() {
  const [from, to] = [...view.measure].sort((a, b) => a - b);
  const taken = to > from ? gpus.reduce((sum, lane) => sum + busyIn(lane, from, to), 0) / gpus.length / (to - from) : 0;
  return `${span(Math.round(to - from))}: ${span(Math.round(from))} → ${span(Math.round(to))}; GPUs busy in it ${(100 * taken).toFixed(1)} %`;
}
function drawMeasure(paint) {
  if (!view.measure) return;
  const [a, b] = view.measure.map(x).sort((a, b) => a - b);
  pen.fillStyle = paint.accent; pen.globalAlpha = 0.15; pen.fillRect(Math.max(left, a), AXIS, b - Math.max(left, a), height - AXIS);
  pen.globalAlpha = 1; pen.strokeStyle = paint.accent; pen.lineWidth = 1.5;
  for (const at of [a, b]) if (at >= left) { pen.beginPath(); pen.moveTo(at, AXIS); pen.lineTo(at, height); pen.stroke(); }
}
// By keys: the first `m` sets the beginning at the middle of the view, the next one the end.
function measureHere() {
  const middle = (view.from + view.to) / 2;
  view.measure = view.measure && view.measure[0] === view.measure[1] ? [view.measure[0], middle] : [middle, middle];
  say(view.measure[0] === view.measure[1] ? "measuring from here: move the view, then press m again" : measured());
  redraw();
}
