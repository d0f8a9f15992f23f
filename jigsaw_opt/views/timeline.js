// The timeline of a plan. Only what is in sight is drawn, so a frame costs no more than its pixels.
const canvas = $("plan"), tip = $("tip");
let pen = canvas.getContext("2d");
const AXIS = 26, START = 0, END = 1, JOB = 2, BYTES = 2, ITERATION = 3, HOLDERS = 3, NUMBER = 4, LEVEL = 5;
const end = Math.max(1, data.end);
// What is shown: from when to when, how far down, the chosen job, whether it is alone, and the lane and interval under the pointer.
const view = { from: 0, to: end, top: 0, job: null, only: null, hover: null, chain: new Map(), steps: [], measure: null };
let width = 0, height = 0, row = 20, left = 120, pending = false, drawn = 0;

const perPixel = () => (view.to - view.from) / Math.max(1, width - left);
const x = time => left + (time - view.from) / perPixel();
const time = pixel => view.from + (pixel - left) * perPixel();
// What a bar says: a block or transfer of a task graph has a name of its own.
const operation = (job, i) => job.operations.length ? (i[LEVEL] ? "" : "⇄ ") + job.operations[i[NUMBER]]
  : job.name + (i[LEVEL] ? " · " + i[LEVEL] : " ⇄ " + i[NUMBER]);
// Blocks of a task graph whose names begin with the same letters, as forward and backward passes of a pipeline, have one shade.
const SHADES = 4;
function shade(job, i) {
  job.kinds ??= new Map();
  const kind = /^\P{N}*/u.exec(job.operations[i[NUMBER]])[0];
  if (!job.kinds.has(kind)) job.kinds.set(kind, job.kinds.size % SHADES);
  return job.kinds.get(kind) / SHADES;
}
const span = us => us >= 1e6 ? (us / 1e6).toFixed(3) + " s" : us >= 1e3 ? (us / 1e3).toFixed(3) + " ms" : us + " µs";

function redraw() { if (!pending) { pending = true; requestAnimationFrame(() => { pending = false; draw(); }); } }

function draw() {
  const scale = devicePixelRatio || 1;
  width = canvas.clientWidth; height = canvas.clientHeight;
  if (canvas.width !== Math.round(width * scale) || canvas.height !== Math.round(height * scale)) {
    canvas.width = Math.round(width * scale); canvas.height = Math.round(height * scale);
  }
  pen.setTransform(scale, 0, 0, scale, 0, 0);
  row = Math.min(34, Math.max(14, (height - AXIS) / rows.length));
  view.top = Math.min(Math.max(0, view.top), Math.max(0, rows.length * row - (height - AXIS)));
  pen.font = "12px system-ui, sans-serif";
  pen.fillStyle = css("--paper"); pen.fillRect(0, 0, width, height);
  const paint = { hole: css("--hole"), ink: css("--ink"), dim: css("--dim"), line: css("--line"), paper: css("--paper"), accent: css("--accent") };
  drawn = 0;
  pen.save(); pen.beginPath(); pen.rect(0, AXIS, width, height - AXIS); pen.clip();
  const first = Math.floor(view.top / row), last = Math.min(rows.length - 1, Math.floor((view.top + height - AXIS) / row));
  for (let index = first; index <= last; index++) {
    const { lane, group } = rows[index], y = AXIS + index * row - view.top;
    (group ? drawGroup : lane.kind === "memory" ? drawMemory : drawLane)(lane ?? group, y, paint);
    drawName(rows[index], y, paint);
    if (index && startsGroup(rows[index], rows[index - 1])) { pen.fillStyle = paint.dim; pen.fillRect(0, y - 0.5, width, 1); }
  }
  drawNeeds(paint);
  drawMeasure(paint);
  drawMoments(paint);
  drawScroll(paint);
  pen.restore();
  drawAxis(paint);
  drawOverview(paint);
  keep();
  canvas.dataset.drawn = drawn; canvas.dataset.from = view.from; canvas.dataset.to = view.to;
}

// Where a row is: its middle, or null where it is hidden; and which row is at a height.
const yOf = lane => lane.row < 0 ? null : AXIS + row * (lane.row + 0.5) - view.top;
const rowAt = py => py < AXIS ? undefined : rows[Math.floor((py - AXIS + view.top) / row)];
const startsGroup = (one, before) => one.group ? one.group.depth === 0 || before.lane : !before.group && one.lane.server !== before.lane.server;
const shownName = ({ lane, group, depth }) => group ? `${"  ".repeat(group.depth)}${folded.has(group.key) ? "▸" : "▾"} ${group.name}` : "  ".repeat(depth) + (lane.isLink ? "⇄ " : "") + lane.name;

// Dashed lines: the bound where it is a time, and when the chosen job may begin and has to end.
function drawMoments(paint) {
  const job = view.job === null ? {} : data.jobs[view.job], cyclic = data.period !== null;
  const moments = [["bound", data.objectiveName === "weighted_completion" || data.bound === data.end ? null : data.bound],
    ["release", cyclic ? null : job.release], ["deadline", cyclic ? null : job.deadline]];
  pen.setLineDash([5, 4]); pen.lineWidth = 1.5; pen.textAlign = "left"; pen.textBaseline = "bottom";
  for (const [name, moment] of moments) {
    if (!moment || moment < view.from || moment > view.to) continue;
    const at = x(moment), wide = pen.measureText(name).width;
    pen.strokeStyle = paint.accent;
    pen.beginPath(); pen.moveTo(at, AXIS); pen.lineTo(at, height); pen.stroke();
    pen.fillStyle = paint.paper; pen.fillRect(Math.min(at, width - wide - 8), height - 18, wide + 8, 18);
    pen.fillStyle = paint.accent; pen.fillText(name, Math.min(at, width - wide - 8) + 4, height - 2);
  }
  pen.setLineDash([]);
}

function drawLane(lane, y, paint) {
  pen.fillStyle = paint.hole; pen.fillRect(left, y + 1, width - left, row - 2);
  const all = lane.intervals, unit = perPixel();
  // Blocks thinner than a pixel are gathered, so a lane never costs more than its width.
  let gatherEnd = -1, gatherStart = 0, gatherJob = -1;
  const flush = () => { if (gatherEnd >= 0) bar(gatherStart, Math.max(gatherEnd, gatherStart + 1), y, gatherJob, 1, paint, 0); gatherEnd = -1; };
  for (let k = firstReaching(all, view.from - lane.longest); k < all.length && all[k][START] < view.to; k++) {
    const i = all[k];
    if (i[END] < view.from) continue;
    const a = x(i[START]), b = x(i[END]);
    if (b - a < 1.2) {
      if (gatherEnd >= 0 && a - gatherEnd < 0.6 && b - gatherStart < 3) gatherEnd = b;
      else { flush(); gatherStart = a; gatherEnd = b; gatherJob = i[JOB]; }
      if (view.job === i[JOB]) gatherJob = i[JOB];
      continue;
    }
    flush();
    bar(a, b, y, i[JOB], i[LEVEL] ? i[LEVEL] / data.jobs[i[JOB]].depth : 0.6, paint, i);
  }
  flush();
}

// How much of a server, a rack or the links is taken over time.
function drawGroup(group, y, paint) {
  pen.fillStyle = paint.hole; pen.fillRect(left, y + 1, width - left, row - 2);
  const count = Math.max(1, Math.floor((width - left) / 2)), key = [view.from, view.to, count].join();
  if (group.key !== undefined && group.drawnFor !== key) { group.parts = busyParts(group.lanes, view.from, view.to, count); group.drawnFor = key; }
  pen.fillStyle = paint.dim;
  area(pen, group.parts, left, y + 1, width - left, row - 2);
  drawn++;
}
// Shares of equal parts as one area in a box.
function area(pen, parts, from, top, wide, high) {
  pen.beginPath(); pen.moveTo(from, top + high);
  parts.forEach((share, p) => { for (const side of [p, p + 1]) pen.lineTo(from + side * wide / parts.length, top + high * (1 - share)); });
  pen.lineTo(from + wide, top + high); pen.fill();
}

function drawMemory(lane, y, paint) {
  pen.fillStyle = paint.hole; pen.fillRect(left, y + 1, width - left, row - 2);
  for (let k = firstReaching(lane.intervals, view.from - lane.longest); k < lane.intervals.length && lane.intervals[k][START] < view.to; k++) {
    const i = lane.intervals[k], a = Math.max(left, x(i[START])), b = Math.min(width, x(i[END]));
    const high = (row - 2) * i[BYTES] / Math.max(1, lane.bytes);
    if (b <= a) continue;
    pen.fillStyle = paint.dim; pen.globalAlpha = 0.55;
    pen.fillRect(a, y + row - 1 - high, Math.max(0.6, b - a), high); drawn++;
    pen.globalAlpha = 1; pen.fillStyle = paint.ink; pen.textAlign = "left"; pen.textBaseline = "middle";
    const who = lane.holders[i[HOLDERS]];
    if (who && row >= 14 && pen.measureText(who).width < b - a - 8) pen.fillText(who, a + 5, y + row / 2);
  }
}

// A stripe stands at the lanes that the proof of the bound rests on.
const inProof = lane => data.proof && (lane.isLink ? data.proof.links.includes(lane.name) : data.proof.servers.includes(lane.server));
function drawName(shown, y, paint) {
  pen.fillStyle = paint.paper; pen.fillRect(0, y, left, row);
  if (shown.lane && inProof(shown.lane)) { pen.fillStyle = paint.accent; pen.fillRect(2, y + 2, 3, row - 4); }
  pen.fillStyle = paint.ink; pen.textBaseline = "middle"; pen.textAlign = "left";
  pen.fillText(shownName(shown), 10, y + row / 2, left - 54);
  pen.fillStyle = paint.dim; pen.textAlign = "right";
  pen.fillText(Math.round(100 * (shown.lane ?? shown.group).busy) + " %", left - 8, y + row / 2);
}

// Where there are more rows than room: which of them are in sight.
function drawScroll(paint) {
  const room = height - AXIS, all = rows.length * row;
  if (all <= room + 1) return;
  pen.fillStyle = paint.dim; pen.globalAlpha = 0.7;
  pen.fillRect(width - 6, AXIS + room * view.top / all, 5, Math.max(12, room * room / all));
  pen.globalAlpha = 1;
}

function bar(a, b, y, job, share, paint, i) {
  const dim = view.job !== null && view.job !== job;
  a = Math.max(a, left); b = Math.min(b, width);
  if (b < left) return;
  pen.globalAlpha = dim ? 0.13 : 1;
  pen.fillStyle = data.jobs[job].colour; pen.fillRect(a, y + 1, b - a, row - 2);
  // A shallow block carries a light band as high as the part of the backward pass that it leaves out.
  if (i && i[LEVEL] && share < 1) { pen.fillStyle = "rgba(255,255,255,0.45)"; pen.fillRect(a, y + 1, b - a, (row - 2) * (1 - share)); }
  const lighter = i && i[LEVEL] && data.jobs[job].operations.length ? shade(data.jobs[job], i) : 0;
  if (lighter) { pen.fillStyle = `rgba(255,255,255,${0.8 * lighter})`; pen.fillRect(a, y + 1, b - a, row - 2); }
  if (b - a > 4) { pen.fillStyle = paint.paper; pen.fillRect(b - 1, y + 1, 1, row - 2); }
  if (i && view.chain.has(i)) { pen.strokeStyle = paint.ink; pen.lineWidth = 1.5; pen.strokeRect(a + 1, y + 1.5, Math.max(1, b - a - 2), row - 3); }
  if (i && view.hover && i === view.hover[1]) { pen.strokeStyle = paint.ink; pen.lineWidth = 2; pen.strokeRect(a + 1, y + 2, Math.max(1, b - a - 2), row - 4); }
  // Colours of jobs are light enough for black text; light bands only lighten them.
  if (i && !dim && b - a > (data.jobs[job].operations.length ? 16 : 46) && row >= 14) {
    pen.fillStyle = "#000000"; pen.textAlign = "left"; pen.textBaseline = "middle";
    const text = operation(data.jobs[job], i);
    if (pen.measureText(text).width < b - a - 8) pen.fillText(text, a + 5, y + row / 2);
  }
  pen.globalAlpha = 1; drawn++;
}

function drawAxis(paint) {
  pen.fillStyle = paint.paper; pen.fillRect(0, 0, width, AXIS);
  const rough = perPixel() * 110, power = 10 ** Math.floor(Math.log10(rough)), step = Math.max(1, power * [1, 2, 5, 10].find(f => f * power >= rough));
  pen.strokeStyle = paint.line; pen.fillStyle = paint.dim; pen.textAlign = "center"; pen.textBaseline = "middle"; pen.lineWidth = 1;
  for (let tick = Math.ceil(view.from / step) * step; tick <= view.to; tick += step) {
    const at = Math.round(x(tick)) + 0.5;
    pen.beginPath(); pen.moveTo(at, AXIS - 5); pen.lineTo(at, AXIS); pen.stroke();
    const told = step >= 1e6 ? tick / 1e6 + " s" : step >= 1e3 || view.to >= 1e5 ? +(tick / 1e3).toFixed(3) + " ms" : tick + " µs";
    pen.fillText(told, Math.min(Math.max(left + 14, at), width - pen.measureText(told).width / 2 - 2), AXIS / 2 - 2);
  }
  pen.beginPath(); pen.moveTo(0, AXIS - 0.5); pen.lineTo(width, AXIS - 0.5); pen.stroke();
}

function clampView(from, to) {
  const length = Math.min(end, Math.max(to - from, 2));
  view.from = Math.min(Math.max(0, from), end - length); view.to = view.from + length;
}
function zoom(factor, pixel = left + (width - left) / 2) {
  const at = time(pixel);
  clampView(at - (at - view.from) * factor, at + (view.to - at) * factor); redraw();
}
function showAll() { clampView(0, end); view.top = 0; redraw(); }

function under(px, py) {
  const lane = rowAt(py)?.lane;
  if (!lane || px < left) return null;
  const at = time(px), slack = perPixel(), all = lane.intervals;
  for (let k = firstReaching(all, at + slack) - 1; k >= 0 && all[k][START] >= at - lane.longest - slack; k--)
    if (all[k][END] >= at - slack) return [lane, all[k]];
  return null;
}
function describe(lane, i) {
  if (lane.kind === "memory") return `${lane.name}: ${size(i[BYTES])} of ${size(lane.bytes)}\ntaken by ${lane.holders[i[HOLDERS]] || "no job"}\n${span(i[START])} → ${span(i[END])}`;
  const job = data.jobs[i[JOB]], said = stepsOf(i[JOB]).get(key(i));
  const what = job.operations.length ? (i[LEVEL] ? "block " : "transfer ") + job.operations[i[NUMBER]] : i[LEVEL] ? `worker ${i[NUMBER]} · level ${i[LEVEL]} of ${job.depth}` : `transfer of bucket ${i[NUMBER]}`;
  return `${job.name}  (${job.model})\niteration ${i[ITERATION]} · ${what}\n${lane.name}: ${span(i[START])} → ${span(i[END])}\nlasts ${span(i[END] - i[START])}${said === undefined ? "" : "\non the critical chain of its job" + (said && "\n" + said)}${toldMeetings(lane, i)}`;
}
function hover(event) {
  const box = canvas.getBoundingClientRect(), hit = under(event.clientX - box.left, event.clientY - box.top);
  if ((hit && hit[1]) !== (view.hover && view.hover[1])) { view.hover = hit; redraw(); }
  tell(hit ? describe(...hit) : "", event);
}
