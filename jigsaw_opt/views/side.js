// Beside the timeline: what there is to say in short, the jobs, and the one that is chosen.
const percent = share => (100 * share).toFixed(0) + " %";
function say(text) { $("said").textContent = text; }

function highlight(job) {
  view.job = view.job === job ? null : job;
  markChosen();
  if (view.job === null && view.only !== null) showAlone(null);
  tellChosen();
  redraw();
}

// Only the lanes that a job is on, or all again.
function showAlone(job) {
  view.only = job;
  layOut(); redraw();
  $("alone")?.setAttribute("aria-pressed", job !== null);
}

// Bring the first interval of a job into sight.
function jump(job) {
  let best = null;
  for (const lane of data.lanes) {
    const i = lane.kind === "memory" ? undefined : lane.intervals.find(it => it[JOB] === job);
    if (i && (!best || i[START] < best[0][START])) best = [i, lane];
  }
  if (view.job !== job) highlight(job);
  if (!best) return;
  const length = view.to - view.from;
  if (best[0][START] < view.from || best[0][START] > view.to) clampView(best[0][START] - length / 4, best[0][START] + 0.75 * length);
  reveal(best[1]);
  draw();
  view.top = best[1].row * row - (height - AXIS) / 2;
  redraw();
}

// When a job ends, and what its time since its release goes into, where that is known. What is before it is no waiting.
const endOf = job => data.jobs[job].story?.end ?? data.jobs[job].last ?? 0;
const WORKS = ["compute", "exchange"];
function timesOf(job) {
  const times = { compute: 0, exchange: 0, waiting: 0 };
  for (const [, us, kind] of data.jobs[job].story?.spent ?? []) if (kind !== "release") times[WORKS.includes(kind) ? kind : "waiting"] += us;
  return times;
}
const waitOf = job => timesOf(job).waiting;
const total = times => Math.max(1, times.compute + times.exchange + times.waiting);
const shares = times => Object.entries(times).map(([name, us]) => `${name} ${percent(us / total(times))}`).join(", ");
const longest = job => data.jobs[job].story?.waits[0];

function tellChosen() {
  const about = $("about"), job = data.jobs[view.job];
  about.hidden = view.job === null;
  if (about.hidden) return;
  about.replaceChildren(element("h2", job.name));
  const lines = [data.period === null ? `ends at ${span(endOf(view.job))}` : "repeats in every period"];
  if (job.deadline) lines.push(`${span(job.deadline - endOf(view.job))} before its deadline`);
  about.append(element("p", lines.join(", ")));
  if (job.story) {
    const bar = element("div", "", { className: "shares", ariaHidden: "true" });
    for (const [title, us, kind] of job.story.spent) {
      const part = element("i", "", { className: WORKS.includes(kind) ? "works" : kind === "release" ? "before" : "waits", title });
      part.style.flexGrow = us; bar.append(part);
    }
    about.append(bar, list(job.story.spent.map(([title, us]) => `${title} ${percent(us / job.story.of)}`)));
    if (job.story.waits.length) about.append(element("p", "Longest waits:"), list(job.story.waits.map(([text, us]) => `${span(us)} ${text}`)));
  }
  const chain = element("button", "chain (c)", { onclick: showChain }), alone = element("button", "its lanes only (f)", { id: "alone", onclick: () => showAlone(view.only === null ? view.job : null) });
  alone.setAttribute("aria-pressed", view.only !== null);
  about.append(chain, " ", alone);
}
function list(lines) {
  const made = element("ul");
  for (const line of lines) made.append(element("li", line));
  return made;
}

// What one sees first: which job ends last and why, which waits most, what idles most, what is taken most, and the proof.
function inShort() {
  const most = (found, by) => found.reduce((best, it) => best === undefined || by(it) > by(best) ? it : best, undefined);
  const numbers = data.jobs.map((_, job) => job), parts = [];
  const why = job => longest(job) ? `; longest wait ${span(longest(job)[1])}: ${longest(job)[0]}` : "";
  const told = job => data.jobs[job].story ? `: ${shares(timesOf(job))} of its time${data.period === null ? " since its release" : ""}${why(job)}` : "";
  if (numbers.length) {
    if (data.period === null) parts.push(["Ends last", job => `${data.jobs[job].name}, at ${span(endOf(job))}${told(job)}`, most(numbers, endOf)]);
    const tight = numbers.filter(job => data.jobs[job].deadline);
    if (tight.length) parts.push(["Nearest to its deadline", job => `${data.jobs[job].name}, ${span(data.jobs[job].deadline - endOf(job))} before it`, most(tight, job => endOf(job) - data.jobs[job].deadline)]);
    const waits = most(numbers, job => waitOf(job) / total(timesOf(job)));
    const all = numbers.map(timesOf).reduce((sum, it) => ({ compute: sum.compute + it.compute, exchange: sum.exchange + it.exchange, waiting: sum.waiting + it.waiting }));
    if (all.compute + all.exchange) parts.push(["All jobs", () => `${shares(all)} of their time on their critical chains`]);
    if (waitOf(waits)) parts.push(["Waits most", job => `${data.jobs[job].name}${told(job)}`, waits]);
  }
  const lazy = most(gpus, lane => -lane.busy), links = data.lanes.filter(lane => lane.kind === "link");
  if (lazy) parts.push(["Idles most", () => `${lazy.name}, idle ${percent(1 - lazy.busy)} of the time`]);
  const full = most(links, lane => lane.busy);
  if (full && full.busy) parts.push(["Fullest link", () => `${full.name}, taken ${percent(full.busy)} of the time`]);
  if (data.proof) parts.push(["Proof", () => data.proof.text, data.proof.jobs.length ? data.jobs.findIndex(job => job.name === data.proof.jobs[0]) : undefined, data.proof.calculation]);
  for (const [title, text, job, exact] of parts) {
    const said = element("dd", undefined, { title: exact ?? "" });
    if (job === undefined) said.textContent = text();
    else said.append(element("button", text(job), { className: "plain", title: exact ? `${exact}; show this job` : "show this job", onclick: () => { if (view.job !== job) jump(job); } }));
    $("short").append(element("dt", title), said);
  }
}

// The jobs that are looked for, in the order asked for. A list is no place for thousands: the rest is found by name.
const LISTED = 300, ORDERS = { "as given": null, "by end": job => -endOf(job), "by waiting": job => -waitOf(job), "by name": null };
let listed = [];
function listJobs() {
  const wanted = $("find").value.toLowerCase(), order = $("order").value, by = ORDERS[order], name = job => data.jobs[job].name;
  listed = data.jobs.map((_, job) => job).filter(job => name(job).toLowerCase().includes(wanted));
  if (by) listed.sort((a, b) => by(a) - by(b));
  else if (order === "by name") listed.sort((a, b) => name(a).localeCompare(name(b), undefined, { numeric: true }));
  $("jobs").replaceChildren(...listed.slice(0, LISTED).map(item));
  const more = listed.length - LISTED;
  $("more").textContent = more > 0 ? `and ${more} more, which their names find` : "";
  markChosen();
}
function item(job) {
  const made = element("li"), button = element("button", undefined, { title: data.jobs[job].model, onclick: () => view.job === job ? highlight(job) : jump(job) });
  button.append(swatch(data.jobs[job].colour), data.jobs[job].name);
  made.dataset.job = job; made.append(button);
  return made;
}
function markChosen() {
  for (const made of $("jobs").children) {
    made.classList.toggle("on", +made.dataset.job === view.job);
    made.firstChild.setAttribute("aria-pressed", +made.dataset.job === view.job);
  }
}
$("order").onchange = listJobs;
$("find").addEventListener("input", listJobs);
$("find").addEventListener("keydown", e => {
  if (e.key === "Escape") canvas.focus();
  if (e.key !== "Enter" || !e.target.value || !listed.length) return;
  jump(listed[(listed.indexOf(view.job) + 1) % listed.length]);
});
