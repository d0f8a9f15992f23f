// A job: its story, why it waits, when it will start; and what may be done to it. Submitting, and the token.
let opened = null;

// What takes the service a while; `otherwise` stands there if the job has changed meanwhile, or the policy still decides.
async function asked(place, path, told, otherwise) {
  const name = opened;
  try { const found = await json(path); if (opened === name) place.textContent = told(found); }
  catch (error) { if (opened === name) place.textContent = error.status === 409 || error.status === 404 ? otherwise : error.message; }
}
const toldStart = found => found.median_us === null ? "not within what was simulated" : (found.median_us < seen.time_us + 1e6 ? "now" : "in " + lasting(found.median_us - seen.time_us)) + (found.warnings.length ? " (" + found.warnings.map(shown).join("; ") + ")" : "");

function openJob(name) {
  opened = name;
  $("job-name").textContent = shown(name);
  for (const id of ["job-facts", "job-why", "job-start", "job-wrong", "acts", "story"]) $(id).replaceChildren();
  if (!$("job").open) $("job").showModal();
  showJob(true);
}

async function showJob(anew) {
  const name = opened;
  if (name === null) return; // it was closed meanwhile
  let found;
  try { found = await json(ofJob(name)); }
  catch (error) { if (opened === name) $("job-wrong").textContent = error.message; return; }
  if (opened !== name) return;
  const { job, story } = found;
  $("job-facts").textContent = job === null ? "It has ended, or was cancelled." : [job.state + (job.on.length ? " on " + job.on.slice(0, 32).map(shown).join(" ") + (job.on.length > 32 ? " …" : "") : ""),
    shown(job.model), counted(job.gpus, "GPU"), "queue " + shown(job.queue || "–"), "weight " + job.weight, "submitted " + moment(job.submitted_us), percent(job.progress) + " done"].join("; ");
  showStory(story);
  if (!anew && $("acts").state === job?.state) return;
  $("acts").state = job?.state;
  showActs(job);
  $("job-start").textContent = !job || job.state === "running" ? "" : "Expected start: being simulated.";
  if (job === null) { $("job-why").textContent = ""; return; }
  $("job-why").textContent = shown(job.reason);
  asked($("job-why"), ofJob(name, "/explanation"), told => shown([told.reason, ...told.remedies.slice(1).map(one => one.text), ...told.influences.map(one => one.text), told.cluster].join(" ")), shown(job.reason));
  if (job.state !== "running") asked($("job-start"), ofJob(name, "/start"), told => "Expected start: " + toldStart(told) + ".", "Expected start: not known yet.");
}

function showStory(story) {
  const table = element("table"), head = table.createTHead().insertRow(), body = table.createTBody();
  for (const title of ["time", "what", "by", "GPUs before", "GPUs after", "why"]) head.append(element("th", title, { scope: "col" }));
  for (const one of story) {
    const line = body.insertRow();
    for (const text of [moment(one.time_us), one.what, one.who, one.before.join(" "), one.after.join(" "), one.text]) line.append(element("td", shown(text)));
  }
  const focused = document.activeElement === $("story");
  $("story").replaceChildren(table);
  if (focused) $("story").focus();
}

function showActs(job) {
  const act = (word, event, sure) => element("button", word, { type: "button", onclick: async click => {
    if (sure && click.target.textContent === word) { click.target.textContent = sure; return; }
    $("job-wrong").textContent = "";
    try { await post("v1/events", { event, job: job.name }); await refresh(); showJob(false); }
    catch (error) { $("job-wrong").textContent = error.message; }
  } });
  $("acts").replaceChildren(...(!job || !may("submit") ? [] : [...(job.state === "waiting" ? [act("Hold", "held")] : []), ...(job.state === "held" ? [act("Release", "released")] : []),
    act("Cancel", "cancel", "Cancel it: its progress is lost")]));
}

function submission() {
  const { queue, ...given } = Object.fromEntries(new FormData($("form")));
  for (const name of ["gpus", "iterations", "weight"]) given[name] = Number(given[name]);
  return { event: "submit", job: given, ...(queue && { queue }) };
}
async function submitted(path, told) {
  $("submit-wrong").textContent = $("tried").textContent = "";
  if (!$("form").reportValidity()) return;
  try { $("tried").textContent = shown(told(await post(path, submission()))); await refresh(); }
  catch (error) { $("submit-wrong").textContent = error.message; }
}
const toldChange = ({ change, without_effect }) => [...change.stops.map(one => one.job + " would stop."), ...change.moves.map(one => one.to.job + " would move."),
  ...change.starts.map(one => one.to.job + " would start on " + one.to.gpus.join(" ") + "."), ...without_effect].join(" ") || "Nothing would change now: it would wait.";

$("form").addEventListener("submit", event => { event.preventDefault(); submitted("v1/events", found => ["It was taken in.", ...found.without_effect].join(" ")); });
$("try").addEventListener("click", () => submitted("v1/what-if", toldChange));
$("submitting").addEventListener("click", () => {
  $("models").replaceChildren(...[...new Set(seen.jobs.model)].slice(0, 200).map(model => element("option", undefined, { value: model })));
  $("submit").showModal();
});
$("signing").addEventListener("click", () => $("sign").showModal());
$("sign-form").addEventListener("submit", event => {
  event.preventDefault();
  token = $("token").value.trim();
  sessionStorage.setItem("token", token);
  $("token").value = "";
  $("sign").close();
  begin();
});
$("job").addEventListener("close", () => { opened = null; });
for (const button of document.querySelectorAll("button.close")) button.addEventListener("click", () => button.closest("dialog").close());
