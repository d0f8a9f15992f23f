// The page of a cluster that is served: it is asked for a view when something changed, and now and then.
const PAST_US = 1e7, POLL_MS = 3000, LEAST_MS = 400, STARTS = 25, START_MS = 15000;
const past = { time_us: [], in_use: [], up: [], waiting: [] };
let round = 0, underway = null, again = false, stopping = new AbortController();

const pause = ms => new Promise(done => setTimeout(done, ms));
const linked = text => { if ($("link").textContent !== text) $("link").textContent = text; };

function show(view) {
  const isFirst = seen === null, isNew = isFirst || view.sequence !== seen.sequence;
  if (chosen >= view.gpus.job.length) chosen = -1;
  lit = lit < 0 ? -1 : view.jobs.name.indexOf(seen.list[lit].name);
  seen = read(view);
  $("about").textContent = `policy ${shown(view.policy)}${view.shadow ? ", shadow: nobody carries out what it decides" : ""}; as of ${moment(view.time_us)}`;
  const counts = JOB_STATES.map((_, state) => view.list.reduce((sum, job) => sum + (job.state === state), 0)), total = view.gpus.job.length;
  const facts = [[view.used, `of ${counted(total, "GPU")} in use`], ...SERVER_STATES.slice(1).map((word, k) => [view.stateCounts[k + 1], word]).filter(([count]) => count),
    ...JOB_STATES.map((word, k) => [counts[k], word === "running" ? "jobs running" : word]), ...(view.links_down.length ? [[view.links_down.length, "of the links down"]] : [])];
  $("facts").replaceChildren(...facts.map(([count, word]) => { const part = element("li"); part.append(element("b", count.toLocaleString("en")), " " + word); return part; }));
  fillAll();
  redraw();
  remember(view, counts[WAITING] + counts[HELD]);
  if (opened !== null && isNew) showJob(false);
}

// The last hours: what the service has kept, and what was seen since, of every 10 s the last.
function remember(view, waiting) {
  const values = { time_us: view.time_us, in_use: view.used, up: view.stateCounts[UP], waiting };
  if (past.time_us.at(-1) >= view.time_us) return;
  if (Math.floor(past.time_us.at(-1) / PAST_US) === Math.floor(view.time_us / PAST_US)) for (const key in past) past[key].pop();
  for (const key in past) past[key].push(values[key]);
  drawPast();
}
function drawPast() {
  const now = past.time_us.at(-1), hours = past.time_us.map(us => (us - now) / 3.6e9), series = [[past.in_use, past.up], [past.waiting]];
  if (charts.length) { series.forEach((lines, k) => charts[k][0].setData([hours, ...lines])); return; }
  const x = { label: "hours before now", sync: "past", tick: brief, tell: it => it < 0 ? span(-it) + " ago" : "now" }, tell = it => brief(it);
  addChart("GPUs in use", hours, [{ values: past.in_use, label: "in use" }, { values: past.up, label: "up", colour: "--dim", dash: [4, 3] }], x,
    { label: "GPUs", most: seen.gpus.job.length, tick: brief, tell, stepped: true });
  addChart("jobs that wait", hours, [{ values: past.waiting }], x, { label: "jobs", tick: brief, tell, stepped: true });
  fitCharts(); // the first one was as wide as the page
}
// What was kept comes before what was seen since the page is open.
function putBefore(usage) {
  const known = usage.time_us.filter(us => us < past.time_us[0]).length;
  for (const key in past) past[key].unshift(...usage[key].slice(0, known));
  drawPast();
}

// One view at a time; whoever asks meanwhile gets one more after it.
function refresh() {
  again = underway !== null;
  return underway ??= (async () => {
    try {
      do {
        again = false;
        const view = await json("v1/view");
        if (seen && view.sequence === seen.sequence && view.time_us === seen.time_us) continue;
        show(view);
        if (again) await pause(LEAST_MS);
      } while (again);
    } finally { underway = null; }
  })();
}

// Changes are told as they come. The stream ends with the service, with the connection, or with a new token.
async function follow(mine) {
  for (let wait = 1000; mine === round; wait = Math.min(30000, 2 * wait)) {
    try {
      const answer = await ask("v1/changes?after=" + seen.sequence, { headers: { Accept: "text/event-stream" }, signal: stopping.signal });
      const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
      for (let rest = ""; ;) {
        const { value, done } = await reader.read();
        if (done || mine !== round) break;
        wait = 1000;
        rest += value;
        if (/^id:/m.test(rest)) await refresh();
        rest = rest.slice(rest.lastIndexOf("\n") + 1);
      }
    } catch { /* the poll says what is wrong */ }
    await pause(wait);
  }
}

async function poll(mine) {
  for (await pause(POLL_MS); mine === round; await pause(POLL_MS)) {
    if (document.hidden) continue;
    try { await refresh(); linked("live"); }
    catch (error) {
      if (error.status === 401) { needToken("The service does not know this token."); return; }
      linked(error instanceof Refused ? error.message : "not reached since " + moment(Date.now() * 1000));
    }
  }
}

// When those that wait first will start, asked one after the other, for it is simulated.
async function expect(mine) {
  for (; mine === round; await pause(1000)) {
    if (document.hidden || !seen) continue;
    const names = [...tables[1].body.rows].slice(0, STARTS).map(line => line.row.name), now = Date.now();
    for (const name of starts.keys()) if (now - starts.get(name).at > 4 * START_MS) starts.delete(name);
    const name = names.find(one => !starts.has(one) || now - starts.get(one).at > START_MS);
    if (name === undefined) continue;
    let text = "";
    try { text = toldStart(await json(ofJob(name, "/start"))); }
    catch { /* it runs by now, or the policy still decides */ }
    starts.set(name, { at: Date.now(), text });
    fill(tables[1]);
  }
}

function needToken(text) {
  linked("a token is needed");
  $("signing").hidden = false;
  $("sign-wrong").textContent = token ? text : "";
  if (!$("sign").open) $("sign").showModal();
  document.body.dataset.ready = "token";
}

async function begin() {
  const mine = ++round;
  stopping.abort(); stopping = new AbortController();
  try {
    const [found, usage] = await Promise.all([json("v1/caller"), json("v1/usage"), refresh()]);
    caller = found;
    $("signing").hidden = !token && caller.role === "operate";
    $("submitting").hidden = !may("submit");
    putBefore(usage);
    linked("live");
  } catch (error) {
    if (error.status === 401) { needToken("The service does not know this token."); return; }
    linked(error.message);
    await pause(POLL_MS);
    if (mine === round) begin();
    return;
  }
  follow(mine); poll(mine); expect(mine);
  while (frame) await new Promise(requestAnimationFrame);
  document.body.dataset.ready = "true";
  performance.mark("ready");
}

showSigns();
addEventListener("resize", fitCharts);
begin();
