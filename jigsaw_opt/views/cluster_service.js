// The service: asked with the token that was typed in, if it needs one. Only this tab keeps the token, until it is closed.
const UP = 0, DOWN = 1, DRAINED = 2, CORDONED = 3, RUNNING = 0, WAITING = 1, HELD = 2;
const SERVER_STATES = ["up", "down", "drained", "cordoned"], JOB_STATES = ["running", "waiting", "held"];
let token = sessionStorage.getItem("token") ?? "", caller = { name: "", role: "" }, seen = null;

class Refused extends Error {
  constructor(status, problems) {
    super(problems.map(one => [one.path, one.message].filter(Boolean).join(": ")).join("\n"));
    this.status = status;
  }
}

// An answer of the service; one other than 2xx is thrown with what it says is wrong.
async function ask(path, options = {}) {
  const headers = { ...(token && { Authorization: "Bearer " + token }), ...(options.body && { "Content-Type": "application/json" }), ...options.headers };
  const answer = await fetch(path, { ...options, headers, cache: "no-store" });
  if (answer.ok) return answer;
  const told = await answer.json().catch(() => ({}));
  throw new Refused(answer.status, told.problems ?? [{ path: "", message: "the service answers " + answer.status }]);
}
const json = async (path, options) => (await ask(path, options)).json();
const post = (path, event) => json(path, { method: "POST", body: JSON.stringify(event) });
const ofJob = (name, what = "") => "v1/jobs/" + encodeURIComponent(name) + what;
const may = role => data.roles.indexOf(caller.role) >= data.roles.indexOf(role);

// Names are foreign text: signs that are not seen, or that turn the direction of writing, are written out.
const shown = text => String(text).replace(/[\p{C}\p{Zl}\p{Zp}]/gu, sign => "\\u" + sign.codePointAt(0).toString(16).padStart(4, "0"));
const moment = us => new Date(us / 1000).toLocaleString("sv");
const lasting = us => span(Math.max(0, us) / 3.6e9);
const percent = share => (100 * share).toFixed(0) + " %";

// The jobs of a view as objects, with the GPUs that each is on; colours, by number, go by name, so that a job keeps its own.
function read(view) {
  const { jobs, gpus, servers } = view;
  view.list = jobs.name.map((name, k) => ({ k, name, model: jobs.model[k], gpus: jobs.gpus[k], queue: jobs.queue[k], state: jobs.state[k],
    weight: jobs.weight[k], submitted: jobs.submitted_us[k], progress: jobs.progress[k], reason: jobs.reason[k], on: [] }));
  for (const column of [gpus.job, gpus.second]) column.forEach((job, gpu) => { if (job >= 0) view.list[job].on.push(gpu); });
  const count = gpus.job.length;
  view.servers.end = servers.first.map((_, k) => servers.first[k + 1] ?? count);
  view.serverOf = new Int32Array(count);
  servers.first.forEach((first, k) => view.serverOf.fill(k, first, servers.end[k]));
  view.used = gpus.job.reduce((sum, job) => sum + (job >= 0), 0);
  view.stateCounts = SERVER_STATES.map((_, state) => gpus.state.reduce((sum, it) => sum + (it === state), 0));
  return view;
}
const gpuName = gpu => { const k = seen.serverOf[gpu]; return shown(seen.servers.name[k]) + "/" + (gpu - seen.servers.first[k]); };
const colourOf = name => {
  let sum = 7;
  for (let k = 0; k < name.length; k++) sum = (31 * sum + name.charCodeAt(k)) >>> 0;
  return sum % data.colours.length;
};
