// The timeline of a plan. Only what is in sight is drawn, so a frame costs no more than its pixels.
const canvas = $("plan"), pen = canvas.getContext("2d"), tip = $("tip");
const AXIS = 26, START = 0, END = 1, JOB = 2, BYTES = 2, ITERATION = 3, NUMBER = 4, LEVEL = 5;
const end = Math.max(1, data.end);
const view = { from: 0, to: end, top: 0, job: null, hover: null, chain: new Set() };
let width = 0, height = 0, row = 20, left = 120, pending = false, drawn = 0;

// The longest interval of a lane bounds how far left of the view one can start and still reach into it.
for (const lane of data.lanes) {
  lane.longest = lane.intervals.reduce((most, i) => Math.max(most, i[END] - i[START]), 0);
  lane.busy = lane.kind === "memory" ? lane.intervals.reduce((most, i) => Math.max(most, i[BYTES]), 0) / Math.max(1, lane.bytes)
    : lane.intervals.reduce((sum, i) => sum + i[END] - i[START], 0) / end;
}

const perPixel = () => (view.to - view.from) / Math.max(1, width - left);
const x = time => left + (time - view.from) / perPixel();
const time = pixel => view.from + (pixel - left) * perPixel();
// What a bar says: a block or transfer of a shape has a name of its own.
const operation = (job, i) => job.operations.length ? (i[LEVEL] ? "" : "⇄ ") + job.operations[i[NUMBER]]
  : job.name + (i[LEVEL] ? " · " + i[LEVEL] : " ⇄ " + i[NUMBER]);
const size = bytes => bytes >= 1e9 ? (bytes / 1e9).toFixed(3) + " GB" : bytes >= 1e6 ? (bytes / 1e6).toFixed(3) + " MB" : bytes + " B";
const span = us => us >= 1e6 ? (us / 1e6).toFixed(3) + " s" : us >= 1e3 ? (us / 1e3).toFixed(3) + " ms" : us + " µs";

function firstReaching(intervals, moment) {
  let low = 0, high = intervals.length;
  while (low < high) { const middle = (low + high) >> 1; intervals[middle][START] < moment ? low = middle + 1 : high = middle; }
  return low;
}

function redraw() { if (!pending) { pending = true; requestAnimationFrame(() => { pending = false; draw(); }); } }

function draw() {
  const scale = devicePixelRatio || 1;
  width = canvas.clientWidth; height = canvas.clientHeight;
  if (canvas.width !== Math.round(width * scale) || canvas.height !== Math.round(height * scale)) {
    canvas.width = Math.round(width * scale); canvas.height = Math.round(height * scale);
  }
  pen.setTransform(scale, 0, 0, scale, 0, 0);
  row = Math.min(34, Math.max(14, (height - AXIS) / data.lanes.length));
  view.top = Math.min(Math.max(0, view.top), Math.max(0, data.lanes.length * row - (height - AXIS)));
  pen.font = "12px system-ui, sans-serif";
  pen.fillStyle = css("--paper"); pen.fillRect(0, 0, width, height);
  const paint = { hole: css("--hole"), ink: css("--ink"), dim: css("--dim"), line: css("--line"), paper: css("--paper"), accent: css("--accent") };
  drawn = 0;
  pen.save(); pen.beginPath(); pen.rect(0, AXIS, width, height - AXIS); pen.clip();
  const first = Math.floor(view.top / row), last = Math.min(data.lanes.length - 1, Math.floor((view.top + height - AXIS) / row));
  for (let index = first; index <= last; index++) {
    const lane = data.lanes[index], y = AXIS + index * row - view.top;
    (lane.kind === "memory" ? drawMemory : drawLane)(lane, y, paint);
    if (index && groupOf(lane) !== groupOf(data.lanes[index - 1])) { pen.fillStyle = paint.dim; pen.fillRect(0, y - 0.5, width, 1); }
  }
  drawMoments(paint);
  pen.restore();
  drawAxis(paint);
  keep();
  canvas.dataset.drawn = drawn; canvas.dataset.from = view.from; canvas.dataset.to = view.to;
}

// Lanes of one server, and all links, stand together.
const groupOf = lane => lane.kind.includes("link") ? "⇄" : lane.name.slice(0, lane.name.lastIndexOf("/"));
const shownName = lane => (lane.kind.includes("link") ? "⇄ " : "") + lane.name;

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
  drawName(lane, y, paint);
}

function drawMemory(lane, y, paint) {
  pen.fillStyle = paint.hole; pen.fillRect(left, y + 1, width - left, row - 2);
  pen.fillStyle = paint.dim;
  for (let k = firstReaching(lane.intervals, view.from - lane.longest); k < lane.intervals.length && lane.intervals[k][START] < view.to; k++) {
    const i = lane.intervals[k], a = Math.max(left, x(i[START])), b = Math.min(width, x(i[END]));
    const high = (row - 2) * i[BYTES] / Math.max(1, lane.bytes);
    if (b > a) { pen.fillRect(a, y + row - 1 - high, Math.max(0.6, b - a), high); drawn++; }
  }
  drawName(lane, y, paint);
}

function drawName(lane, y, paint) {
  pen.fillStyle = paint.paper; pen.fillRect(0, y, left, row);
  pen.fillStyle = paint.ink; pen.textBaseline = "middle"; pen.textAlign = "left";
  pen.fillText(shownName(lane), 10, y + row / 2, left - 54);
  pen.fillStyle = paint.dim; pen.textAlign = "right";
  pen.fillText(Math.round(100 * lane.busy) + " %", left - 8, y + row / 2);
}

function bar(a, b, y, job, share, paint, i) {
  const dim = view.job !== null && view.job !== job;
  a = Math.max(a, left); b = Math.min(b, width);
  if (b < left) return;
  pen.globalAlpha = dim ? 0.13 : 1;
  pen.fillStyle = data.jobs[job].colour; pen.fillRect(a, y + 1, b - a, row - 2);
  // A shallow block carries a light band as high as the part of the backward pass that it leaves out.
  if (i && i[LEVEL] && share < 1) { pen.fillStyle = "rgba(255,255,255,0.45)"; pen.fillRect(a, y + 1, b - a, (row - 2) * (1 - share)); }
  if (b - a > 4) { pen.fillStyle = paint.paper; pen.fillRect(b - 1, y + 1, 1, row - 2); }
  if (i && (view.chain.has(i) || mark(i))) { pen.strokeStyle = paint.ink; pen.lineWidth = 1.5; pen.strokeRect(a + 1, y + 1.5, Math.max(1, b - a - 2), row - 3); }
  if (i && i === view.hover) { pen.strokeStyle = paint.ink; pen.lineWidth = 2; pen.strokeRect(a + 1, y + 2, Math.max(1, b - a - 2), row - 4); }
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
    pen.fillText(step >= 1e6 ? tick / 1e6 + " s" : step >= 1e3 || view.to >= 1e5 ? +(tick / 1e3).toFixed(3) + " ms" : tick + " µs", Math.max(left + 14, at), AXIS / 2 - 2);
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
  const lane = data.lanes[Math.floor((py - AXIS + view.top) / row)];
  if (!lane || px < left || py < AXIS) return null;
  const at = time(px), slack = perPixel(), all = lane.intervals;
  for (let k = firstReaching(all, at + slack) - 1; k >= 0 && all[k][START] >= at - lane.longest - slack; k--)
    if (all[k][END] >= at - slack) return [lane, all[k]];
  return null;
}
function describe(lane, i) {
  if (lane.kind === "memory") return `${lane.name}: ${size(i[BYTES])} of ${size(lane.bytes)}\n${span(i[START])} → ${span(i[END])}`;
  const job = data.jobs[i[JOB]], said = mark(i);
  const what = job.operations.length ? (i[LEVEL] ? "block " : "transfer ") + job.operations[i[NUMBER]] : i[LEVEL] ? `worker ${i[NUMBER]} · level ${i[LEVEL]} of ${job.depth}` : `transfer of bucket ${i[NUMBER]}`;
  return `${job.name}  (${job.model})\niteration ${i[ITERATION]} · ${what}\n${lane.name}: ${span(i[START])} → ${span(i[END])}\nlasts ${span(i[END] - i[START])}${said ? "\n" + said : ""}${toldMeetings(lane, i)}`;
}
function mark(i) {
  const names = data.jobs[i[JOB]].operations, kinds = names.length ? ["transfer", "block"] : ["bucket", "worker"];
  return data.marks[`${i[JOB]}/${i[ITERATION]}/${kinds[i[LEVEL] ? 1 : 0]} ${names.length ? names[i[NUMBER]] : i[NUMBER]}`];
}
function hover(event) {
  const box = canvas.getBoundingClientRect(), hit = under(event.clientX - box.left, event.clientY - box.top);
  if ((hit && hit[1]) !== view.hover) { view.hover = hit && hit[1]; redraw(); }
  tell(hit ? describe(...hit) : "", event);
}
function highlight(job) {
  view.job = view.job === job ? null : job;
  for (const item of $("jobs").children) {
    item.classList.toggle("on", +item.dataset.job === view.job);
    item.firstChild.setAttribute("aria-pressed", +item.dataset.job === view.job);
  }
  redraw();
}

// Bring the first interval of a job into sight.
function jump(job) {
  let best = null;
  data.lanes.forEach((lane, index) => {
    const i = lane.kind === "memory" ? undefined : lane.intervals.find(it => it[JOB] === job);
    if (i && (!best || i[START] < best[0][START])) best = [i, index];
  });
  if (view.job !== job) highlight(job);
  if (!best) return;
  const length = view.to - view.from;
  if (best[0][START] < view.from || best[0][START] > view.to) clampView(best[0][START] - length / 4, best[0][START] + 0.75 * length);
  view.top = best[1] * row - (height - AXIS) / 2;
  redraw();
}

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
canvas.addEventListener("pointerdown", e => { grip = { x: e.clientX, y: e.clientY, from: view.from, to: view.to, top: view.top, moved: false }; canvas.setPointerCapture(e.pointerId); });
canvas.addEventListener("pointermove", e => {
  if (!grip) { hover(e); return; }
  if (Math.abs(e.clientX - grip.x) + Math.abs(e.clientY - grip.y) > 3) grip.moved = true;
  const shift = (grip.x - e.clientX) * perPixel();
  clampView(grip.from + shift, grip.to + shift); view.top = grip.top + grip.y - e.clientY;
  canvas.classList.add("drag"); tip.style.display = "none"; redraw();
});
canvas.addEventListener("pointerup", e => {
  const clicked = grip && !grip.moved, box = canvas.getBoundingClientRect();
  grip = null; canvas.classList.remove("drag");
  if (clicked) { const hit = under(e.clientX - box.left, e.clientY - box.top); highlight(hit && hit[0].kind !== "memory" ? hit[1][JOB] : view.job); }
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
  if (e.target.tagName === "INPUT" || $("keys").open || e.ctrlKey || e.metaKey || e.altKey) return;
  const step = (view.to - view.from) / 8;
  const act = { "+": () => zoom(0.6), "=": () => zoom(0.6), "-": () => zoom(1 / 0.6), "0": showAll, "?": () => $("keys").showModal(), "/": () => $("find").focus(), Escape: () => { hideChain(); highlight(view.job); }, c: showChain,
    ArrowLeft: () => clampView(view.from - step, view.to - step), ArrowRight: () => clampView(view.from + step, view.to + step),
    ArrowUp: () => { view.top -= 3 * row; }, ArrowDown: () => { view.top += 3 * row; } }[e.key];
  if (act) { act(); redraw(); e.preventDefault(); }
});
$("in").onclick = () => zoom(0.6); $("out").onclick = () => zoom(1 / 0.6); $("all").onclick = showAll;
$("help").onclick = () => $("keys").showModal();
$("save").hidden = location.protocol === "about:"; // A page inside a page may not download.
$("save").onclick = () => canvas.toBlob(picture => {
  const link = element("a", "", { download: data.name.replace(/[^\w.-]+/g, "_") + ".png" });
  link.setAttribute("href", URL.createObjectURL(picture)); link.click();
});
$("find").addEventListener("keydown", e => {
  if (e.key === "Escape") canvas.focus();
  if (e.key !== "Enter" || !e.target.value) return;
  const found = [...$("jobs").children].filter(item => item.style.display !== "none").map(item => +item.dataset.job);
  if (found.length) jump(found.find(job => view.job !== null && job > view.job) ?? found[0]);
});
$("find").addEventListener("input", e => {
  const wanted = e.target.value.toLowerCase();
  for (const item of $("jobs").children) item.style.display = item.textContent.toLowerCase().includes(wanted) ? "" : "none";
});

pen.font = "12px system-ui, sans-serif";
left = Math.min(240, Math.max(90, 0.3 * innerWidth), 62 + Math.max(...data.lanes.map(lane => pen.measureText(shownName(lane)).width)));
$("name").textContent = data.name;
const gap = data.objective > data.bound ? 100 * (data.objective - data.bound) / data.objective : 0;
const gpus = data.lanes.filter(lane => lane.kind === "gpu");
const busy = gpus.reduce((sum, lane) => sum + lane.busy, 0) / gpus.length;
const value = us => data.objectiveName === "weighted_completion" ? us : span(us);
const facts = [[data.objectiveName, value(data.objective)], ["bound", value(data.bound)], ["gap", gap.toFixed(2) + " %"], ["status", data.status], ["solver", data.solver],
  ["jobs", data.jobs.length], ...(data.facts.length ? data.facts : [["GPUs busy", (100 * busy).toFixed(1) + " %"]])];
for (const [label, text] of facts) {
  const part = document.createElement("span"), strong = document.createElement("b");
  part.textContent = label + " "; strong.textContent = text; strong.style.color = "var(--ink)"; part.append(strong, " \u2003"); $("facts").append(part);
}
data.jobs.forEach((job, index) => {
  const item = element("li"), button = element("button", undefined, { title: job.model, onclick: () => highlight(index) });
  button.setAttribute("aria-pressed", false);
  button.append(swatch(job.colour), job.name); item.dataset.job = index; item.append(button); $("jobs").append(item);
});
new ResizeObserver(redraw).observe($("stage"));
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
draw();
reopen();
document.body.dataset.ready = "true";
