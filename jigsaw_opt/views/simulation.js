// The report of a simulation: measures with their meanings, charts by uPlot, and a timeline of all jobs.
const hours = us => us / 3.6e9;
const told = { h: span, ms: value => brief(value) + " ms", share: value => brief(100 * value) + " %", "": brief };
const NAME = 0, MODEL = 1, SUBMIT = 2, FINISH = 3, RESTARTS = 4, WAITED = 5, HELD = 6, PAUSED = 7;

$("title").textContent = data.title;
$("about").textContent = data.workload + ", " + counted(data.gpus, "GPU") + ", " + span(hours(data.end));
for (const text of data.findings) $("findings").append(element("li", text));
for (const [name, unit, meaning, value] of data.summary) {
  const row = element("div"), left = element("span", name);
  left.append(element("small", meaning));
  row.append(left, element("b", value === null ? "–" : told[unit](value)));
  $("facts").append(row);
}
for (const model of data.models) {
  const label = element("span");
  label.append(swatch(model.colour), model.name);
  $("models").append(label);
}

function fitted(canvas) {
  const scale = window.devicePixelRatio || 1, width = canvas.clientWidth, height = canvas.clientHeight;
  canvas.width = width * scale; canvas.height = height * scale;
  const pen = canvas.getContext("2d");
  pen.scale(scale, scale);
  pen.clearRect(0, 0, width, height);
  pen.font = "11px system-ui, sans-serif";
  return [pen, width, height];
}

const LEAST_H = 1 / 3600;
// A logarithmic axis has no 0: what ended within a second stands at a second.
const done = data.completion.map(time => Math.max(time, LEAST_H));
if (done.length) addChart("jobs that ended within a time", done, [{ values: done.map((_, k) => 100 * (k + 1) / done.length) }],
  { label: "completion time (logarithmic)", log: true, sync: "completion", tick: span, tell: span },
  { label: "jobs, %", most: 100, tick: brief, tell: it => brief(it) + " %" });
for (const chart of data.charts) {
  const moments = chart.values.map((_, k) => hours(data.end) * (k + 0.5) / chart.values.length);
  addChart(chart.name, moments, [{ values: chart.values }], { label: "time, h", sync: "time", tick: brief, tell: span },
    { label: chart.unit, most: chart.most, tick: brief, tell: it => (it < 10 ? brief(Math.round(10 * it) / 10) : brief(Math.round(it))) + " " + chart.unit });
}

const SHOWN = 32;  // names of GPUs at the pointer
const stints = data.jobs.map(() => []);
for (const stint of data.stints) stints[stint[0]].push(stint);
const view = { from: 0, to: Math.max(1, data.end), top: 0, rows: data.jobs.length };
const timeline = $("timeline");

function drawTimeline() {
  const [pen, width, height] = fitted(timeline), tall = height / Math.max(1, view.rows);
  const x = us => (us - view.from) / (view.to - view.from) * width;
  const box = (from, to, row, colour, share) => {
    const left = Math.max(-1, x(from)), right = Math.min(width + 1, x(to));
    if (right < 0 || left > width) return;
    pen.fillStyle = colour;
    pen.fillRect(left, (row - view.top) * tall, Math.max(0.5, right - left), Math.max(0.6, tall * share));
  };
  const pale = css("--dim"), last = Math.min(data.jobs.length, Math.ceil(view.top + view.rows) + 1);
  for (let row = Math.floor(view.top); row < last; row++) {
    const job = data.jobs[row];
    box(job[SUBMIT], job[FINISH] ?? data.end, row + 0.3, pale, 0.3);
    for (const stint of stints[row]) box(stint[1], stint[2], row, data.models[job[MODEL]].colour, 0.9);
    if (tall >= 12) { pen.fillStyle = css("--ink"); pen.fillText(job[NAME], 4, (row - view.top + 0.75) * tall); }
  }
}

timeline.addEventListener("wheel", event => {
  event.preventDefault();
  const factor = event.deltaY > 0 ? 1.25 : 0.8, area = timeline.getBoundingClientRect();
  const across = (event.clientX - area.left) / area.width, down = (event.clientY - area.top) / area.height;
  if (event.shiftKey) { view.top += Math.sign(event.deltaY || event.deltaX) * view.rows / 8; }
  else {
    const at = view.from + across * (view.to - view.from), row = view.top + down * view.rows;
    const wide = Math.min(Math.max(1, data.end), (view.to - view.from) * factor);
    view.rows = Math.min(data.jobs.length, Math.max(8, view.rows * factor));
    view.from = Math.min(Math.max(0, at - across * wide), Math.max(1, data.end) - wide); view.to = view.from + wide;
    view.top = row - down * view.rows;
  }
  view.top = Math.max(0, Math.min(view.top, data.jobs.length - view.rows));
  drawTimeline();
}, { passive: false });
timeline.addEventListener("dblclick", () => {
  Object.assign(view, { from: 0, to: Math.max(1, data.end), top: 0, rows: data.jobs.length });
  drawTimeline();
});
timeline.addEventListener("mousemove", event => {
  const area = timeline.getBoundingClientRect();
  const row = Math.floor(view.top + (event.clientY - area.top) / area.height * view.rows), job = data.jobs[row];
  if (!job) { $("tip").style.display = "none"; return; }
  const at = view.from + (event.clientX - area.left) / area.width * (view.to - view.from);
  const stint = stints[row].find(one => one[1] <= at && at < one[2]);
  tell(job[NAME] + " (" + data.models[job[MODEL]].name + ")\nsubmitted " + span(hours(job[SUBMIT])) + ", " +
    (job[FINISH] === null ? "not ended" : "ended " + span(hours(job[FINISH]))) + ", " + counted(job[RESTARTS], "restart") +
    "\nwaited " + span(hours(job[WAITED])) + ", held GPUs for " + span(hours(job[HELD])) + (job[PAUSED] ? ", none for " + span(hours(job[PAUSED])) + " between" : "") +
    (stint ? "\non " + counted(stint[3], "GPU") + " from " + span(hours(stint[1])) + " to " + span(hours(stint[2])) +
      (stint[4].length ? ":\n" + stint[4].slice(0, SHOWN).map(gpu => data.names[gpu]).join(" ") + (stint[4].length > SHOWN ? " …" : "") : "") : ""), event);
});
timeline.addEventListener("mouseleave", () => { $("tip").style.display = "none"; });

// A row a server: the darker, the more of its GPUs are held.
const servers = $("servers"), GUTTER = 90;
const tallest = Math.max(3, Math.min(18, Math.floor(600 / data.servers.length)));
servers.style.height = tallest * data.servers.length + 2 + "px";
$("shades").textContent = "(pale: idle; full colour: all its GPUs are held)";

function drawServers() {
  const [pen, width] = fitted(servers), left = tallest >= 11 ? GUTTER : 0;
  data.servers.forEach(({ name, gpus, values }, row) => {
    const wide = (width - left) / values.length;
    pen.fillStyle = css("--accent");
    values.forEach((value, k) => {
      pen.globalAlpha = 0.07 + 0.93 * Math.min(1, value / gpus);
      pen.fillRect(left + k * wide, row * tallest, wide + 0.3, tallest - 1);
    });
    pen.globalAlpha = 1;
    pen.fillStyle = css("--ink");
    if (left) pen.fillText(name, 3, (row + 0.75) * tallest, GUTTER - 6);
  });
}
servers.addEventListener("mousemove", event => {
  const area = servers.getBoundingClientRect(), left = tallest >= 11 ? GUTTER : 0;
  const server = data.servers[Math.floor((event.clientY - area.top) / tallest)];
  const across = (event.clientX - area.left - left) / (area.width - left), k = server ? Math.floor(across * server.values.length) : -1;
  const part = hours(data.end) / (server ? server.values.length : 1);
  tell(server && server.values[k] !== undefined ? server.name + "\n" + brief(server.values[k]) + " of " + counted(server.gpus, "GPU") + " held from " + span(k * part) + " to " + span((k + 1) * part) : "", event);
});
servers.addEventListener("mouseleave", () => { $("tip").style.display = "none"; });

if (data.waits.length) {
  const table = element("table"), head = table.createTHead().insertRow(), body = table.createTBody();
  for (const [text, kind] of [["job", ""], ["submitted", "number"], ["before the first start", "number"], ["between", "number"], ["holding GPUs", "number"]])
    head.append(element("th", text, { scope: "col", className: kind }));
  for (const job of data.waits.map(k => data.jobs[k])) {
    const row = body.insertRow();
    row.append(element("td", job[NAME]));
    for (const at of [SUBMIT, WAITED, PAUSED, HELD]) row.append(element("td", span(hours(job[at])), { className: "number" }));
  }
  $("waits").append(table);
  $("waiting").hidden = false;
}

function drawAll() {
  fitCharts();
  drawTimeline();
  drawServers();
}
addEventListener("resize", drawAll);
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", drawAll);
drawAll();
document.body.dataset.ready = true;
