// The phases of every job on one axis; a period of the chosen one is a page inside the page.
const escaped = text => text.replaceAll("&", "&amp;").replaceAll("<", "&lt;");
const UNITS = [["µs", 1], ["ms", 1e3], ["s", 1e6], ["min", 6e7], ["h", 3.6e9], ["days", 8.64e10]];
const span = us => { const [name, size] = UNITS.findLast(unit => us >= unit[1]) ?? UNITS[0]; return +(us / size).toPrecision(4) + " " + name; };
const percent = share => (100 * share).toFixed(share < 0.1 ? 1 : 0) + " %";

// When each job begins, ends, and is in no phase between its release and its end.
for (const job of data.jobs) Object.assign(job, { begin: Infinity, last: 0, worked: 0 });
const planned = data.rows.filter(row => !row.measured);
for (const row of planned) for (const [start, end] of row.parts) {
  const job = data.jobs[row.job];
  job.begin = Math.min(job.begin, start); job.last = Math.max(job.last, end); job.worked += end - start;
}
const waited = job => Math.max(0, job.last - job.release - job.worked);

const idleIn = lengths => k => (1 - data.phases[k].busy) * data.phases[k].gpus * lengths.get(k);
const nameOf = k => data.phases[k].title.split(":")[0];

function inShort() {
  const most = (list, by) => list.reduce((best, it) => best === undefined || by(it) > by(best) ? it : best, undefined);
  const last = most(data.jobs, job => job.last), waits = most(data.jobs, waited), bars = new Map();
  for (const row of planned) for (const [start, end, k] of row.parts) bars.set(k, end - start);
  const longest = most([...bars.keys()], k => bars.get(k)), idle = most([...bars.keys()], idleIn(bars));
  const told = [["Ends last", `${last.name}, at ${span(last.last)}; it is in phases for ${percent(last.worked / Math.max(1, last.last - last.release))} of the time since its release`]];
  const tight = most(data.jobs.filter(job => job.deadline !== null), job => job.last - job.deadline);
  if (tight) told.push(["Nearest to its deadline", `${tight.name}, ${span(tight.deadline - tight.last)} before it`]);
  if (waited(waits)) told.push(["Waits most", `${waits.name}, in no phase for ${span(waited(waits))}; its first begins at ${span(waits.begin)}`]);
  told.push(["Longest phase", `${nameOf(longest)}, lasts ${span(bars.get(longest))}, ${percent(bars.get(longest) / last.last)} of the plan; its GPUs compute ${percent(data.phases[longest].busy)} of the time`]);
  if (bars.size > 1) told.push(["Idles most", `${nameOf(idle)}: ${span(idleIn(bars)(idle))} of GPU time on ${counted(data.phases[idle].gpus, "GPU")}, ${percent(1 - data.phases[idle].busy)} of its ${span(bars.get(idle))}`]);
  if (data.proof) told.push(["Proof", data.proof.text, data.proof.calculation]);
  for (const [name, text, exact] of told) $("short").append(element("dt", name), element("dd", text, { title: exact ?? "" }));
}

let shown = 0;
function show(number) {
  shown = number;
  $("before").disabled = number === 0;
  $("after").disabled = number === data.phases.length - 1;
  const { title, page } = data.phases[number];
  const texts = { title: escaped(data.name), data: JSON.stringify(page).replaceAll("<", "\\u003c") };
  $("phase").textContent = title;
  $("period").srcdoc = data.template.replace(/\{\{(title|data)\}\}/g, (_, key) => texts[key]);
  markShown();
  if (location.protocol !== "about:") history.replaceState(null, "", "#phase=" + number);
}
function markShown() {
  for (const button of document.querySelectorAll(".axis button")) button.classList.toggle("chosen", Number(button.dataset.phase) === shown);
}

function describe(row, [start, end, number]) {
  const { title, period, repeats, iterations, busy } = data.phases[number];
  const when = `${row.name}, ${title.split(":")[0]}\n${span(start)} → ${span(end)}, lasts ${span(end - start)}`;
  if (row.measured) return when;
  return `${when}\n${counted(repeats, "period")} of ${span(period)}, ${counted(iterations[row.name], "iteration")} of this job in each\nits GPUs compute ${percent(busy)} of the time`;
}

const ORDERS = { "by group": null, "as given": (a, b) => a.job - b.job, "by end": (a, b) => data.jobs[b.job].last - data.jobs[a.job].last, "by waiting": (a, b) => waited(data.jobs[b.job]) - waited(data.jobs[a.job]), "by name": (a, b) => a.name.localeCompare(b.name, undefined, { numeric: true }) };
function listRows() {
  const wanted = $("find").value.toLowerCase(), order = ORDERS[$("order").value];
  const rows = data.rows.filter(row => row.name.toLowerCase().includes(wanted));
  if (order) rows.sort(order);
  const parts = [];
  let group = -1;
  for (const row of rows) {
    if (!order && row.group !== group) { group = row.group; parts.push(element("h2", `group ${group}`)); }
    parts.push(line(row));
  }
  for (const lane of data.memory) parts.push(memoryLine(lane));
  $("rows").replaceChildren(...parts);
  markShown();
}
function line(row) {
  const made = element("div", undefined, { className: "row" }), axis = element("div", undefined, { className: "axis" });
  for (const part of row.parts) {
    const [start, end, number] = part, button = element("button", "", { onclick: () => show(number) });
    button.setAttribute("aria-label", `${row.name}: ${data.phases[number].title}`);
    Object.assign(button.style, { left: `${100 * start / data.end}%`, width: `${100 * (end - start) / data.end}%`, background: row.colour });
    button.dataset.phase = number;
    button.onmousemove = event => tell(describe(row, part), event);
    button.onmouseleave = () => { $("tip").style.display = "none"; };
    axis.append(button);
  }
  const { deadline } = data.jobs[row.job];
  if (deadline !== null && deadline <= data.end) {
    const mark = element("span", "", { className: "end", title: "deadline" });
    mark.style.left = `${100 * deadline / data.end}%`; axis.append(mark);
  }
  made.append(element("span", row.name, { title: row.name }), axis);
  return made;
}
function memoryLine(lane) {
  const made = element("div", undefined, { className: "row" }), axis = element("div", undefined, { className: "axis" });
  for (const [start, end, bytes, holders] of lane.intervals) {
    const part = element("span", lane.holders[holders], { className: "held" });
    Object.assign(part.style, { left: `${100 * start / data.end}%`, width: `${100 * (end - start) / data.end}%` });
    part.style.setProperty("--taken", `${100 * bytes / Math.max(1, lane.bytes)}%`);
    part.onmousemove = event => tell(`${lane.name}: ${size(bytes)} of ${size(lane.bytes)}\ntaken by ${lane.holders[holders] || "no job"}\n${span(start)} → ${span(end)}`, event);
    part.onmouseleave = () => { $("tip").style.display = "none"; };
    axis.append(part);
  }
  made.append(element("span", lane.name, { title: lane.name }), axis);
  return made;
}
function drawScale() {
  const axis = document.querySelector("#scale .axis"), [name, size] = UNITS.findLast(unit => data.end >= 3 * unit[1]) ?? UNITS[0];
  const rough = data.end / size / Math.max(2, axis.clientWidth / 90), power = 10 ** Math.floor(Math.log10(rough));
  const step = power * [1, 2, 5, 10].find(factor => factor * power >= rough), ticks = [];
  for (let tick = 0; tick * size < data.end; tick += step) {
    const made = element("i", `${+tick.toPrecision(6)} ${name}`);
    made.style.left = `${100 * tick * size / data.end}%`;
    if (tick * size < 0.94 * data.end) ticks.push(made);
  }
  axis.replaceChildren(...ticks);
}

$("name").textContent = data.name;
for (const order of Object.keys(ORDERS)) $("order").append(element("option", order));
const gap = data.objective > (data.bound ?? 0) ? 100 * (data.objective - (data.bound ?? 0)) / data.objective : 0;
const proven = data.bound === null ? [] : [["bound", span(data.bound)], ["gap", gap.toFixed(2) + " %"]];
for (const [name, text] of [["whole plan:", data.objectiveName.replaceAll("_", " ") + " " + span(data.objective)], ...proven, ["status", data.status], ["solver", data.solver], ["jobs", data.jobs.length], ["phases", data.phases.length], ...data.facts]) {
  const part = element("span", name + " ");
  part.append(element("b", text)); $("about").append(part);
}
inShort();
listRows();
drawScale();
$("find").oninput = $("order").onchange = listRows;
$("before").onclick = () => show(shown - 1);
$("after").onclick = () => show(shown + 1);
addEventListener("resize", drawScale);
addEventListener("keydown", e => {
  if (["INPUT", "SELECT"].includes(e.target.tagName) || e.ctrlKey || e.metaKey || e.altKey) return;
  if (e.key === "/") { $("find").focus(); e.preventDefault(); }
  const next = shown + ({ ArrowLeft: -1, ArrowRight: 1 }[e.key] ?? 0);
  if (next !== shown && data.phases[next]) show(next);
});
show(Math.min(data.phases.length - 1, Number(/^#phase=(\d+)$/.exec(location.hash)?.[1] ?? 0)));
document.body.dataset.ready = "true";
