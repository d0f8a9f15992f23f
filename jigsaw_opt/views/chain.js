// What a block or transfer waits for, and the chain that leads to the end of a job.
// The intervals of a job, each with its lane: looked for when they are first asked for, as an index of all jobs takes longer.
const pairs = new Map();
function pairsOf(job) {
  if (!pairs.has(job)) {
    const found = [];
    for (const lane of data.lanes) if (lane.kind !== "memory") for (const i of lane.intervals) if (i[JOB] === job) found.push([lane, i]);
    pairs.set(job, found);
  }
  return pairs.get(job);
}

// Of its job and on its lane: what ends as it begins, or begins as it ends. Its own job stands first.
function meeting(lane, i, after) {
  const meets = o => o !== i && (after ? o[START] === i[END] : o[END] === i[START]);
  const found = pairsOf(i[JOB]).filter(([, o]) => meets(o)), all = lane.intervals;
  const moment = after ? i[END] : i[START], least = after ? moment : moment - lane.longest;
  for (let k = firstReaching(all, least); k < all.length && all[k][START] <= moment; k++)
    if (all[k][JOB] !== i[JOB] && meets(all[k])) found.push([lane, all[k]]);
  return found;
}

function toldMeetings(lane, i) {
  const brief = ([on, o]) => `${data.jobs[o[JOB]].name}, iteration ${o[ITERATION]}, on ${on.name}`;
  const list = (says, found) => found.length ? `\n${says} ${found.slice(0, 2).map(brief).join("; ")}${found.length > 2 ? ` and ${found.length - 2} more` : ""}` : "";
  return list("begins as this ends:", meeting(lane, i, false)) + list("as it ends begins:", meeting(lane, i, true));
}

// What an interval waits for. Of a task graph its edges say so; elsewhere a block waits for everything of the iteration
// before, and a transfer for those before it and for the blocks that reach its bucket, which may still run.
function needs(i) {
  const job = data.jobs[i[JOB]], own = pairsOf(i[JOB]);
  const before = job.operations.length
    ? o => job.edges.some(([b, a, lag]) => a === i[NUMBER] && b === o[NUMBER] && o[ITERATION] === i[ITERATION] - lag)
    : i[LEVEL] ? o => o[ITERATION] === i[ITERATION] - 1 : o => o[ITERATION] === i[ITERATION] && (o[LEVEL] ? o[LEVEL] >= i[NUMBER] : o[NUMBER] < i[NUMBER]);
  const running = !i[LEVEL] && !job.operations.length;
  return own.filter(([, o]) => o[running ? START : END] <= i[START] && before(o));
}

// By the name of an operation, as `key` makes it, what its story says of it.
const toldSteps = new Map();
function stepsOf(job) {
  if (!toldSteps.has(job)) toldSteps.set(job, new Map(data.jobs[job].story?.chain ?? []));
  return toldSteps.get(job);
}
function key(i) {
  const names = data.jobs[i[JOB]].operations, kinds = names.length ? ["transfer", "block"] : ["bucket", "worker"];
  return `${i[ITERATION]}/${kinds[i[LEVEL] ? 1 : 0]} ${names.length ? names[i[NUMBER]] : i[NUMBER]}`;
}

// The chain of the chosen job, or else of the one that ends last: as its story tells it or, without one, back from its
// end as long as something ends as it begins.
function showChain() {
  const job = view.job ?? data.jobs.reduce((last, _, other) => endOf(other) > endOf(last) ? other : last, 0);
  const story = data.jobs[job].story, chain = story ? toldChain(job) : gaplessChain(job);
  view.chain = new Map(chain.map(([lane, i]) => [i, lane]));
  // An operation on several lanes, or in two parts, is one step.
  view.steps = [...new Map(chain.map(([lane, i]) => [key(i), [lane, i]]).reverse()).values()].sort((a, b) => a[1][START] - b[1][START]);
  canvas.dataset.chain = view.steps.length;
  const since = Math.min(...chain.map(([, i]) => i[START])), until = Math.max(...chain.map(([, i]) => i[END]));
  if (chain.length) say(`${story ? "critical chain of " + data.jobs[job].name : "chain without a gap"}: ${counted(view.steps.length, "step")}, ${span(since)} → ${span(until)}`);
  redraw();
}
function toldChain(job) {
  return pairsOf(job).filter(([, i]) => stepsOf(job).has(key(i))).sort((a, b) => a[1][START] - b[1][START]);
}
function gaplessChain(job) {
  const chain = new Map();
  let step = pairsOf(job).reduce((last, it) => !last || it[1][END] > last[1][END] ? it : last, undefined);
  while (step) {
    chain.set(step[1], step);
    step = meeting(...step, false).find(([, o]) => !chain.has(o));
  }
  return [...chain.values()].reverse();
}
function hideChain() { view.chain = new Map(); view.steps = []; say(""); redraw(); }

// Lines from what an interval waits for, and along the chain.
function drawNeeds(paint) {
  const { steps } = view, arrows = view.hover && view.hover[0].kind !== "memory" ? needs(view.hover[1]).slice(0, 64).map(from => [from, view.hover]) : [];
  for (let k = 1; k < steps.length; k++) arrows.push([steps[k - 1], steps[k]]);
  pen.strokeStyle = paint.ink; pen.lineWidth = 1.2;
  for (const [[from, i], [to, o]] of arrows) {
    const y = yOf(from), high = yOf(to);
    if (y === null || high === null || i[END] > view.to && o[START] > view.to || i[END] < view.from && o[START] < view.from) continue;
    pen.beginPath(); pen.moveTo(Math.max(left, x(Math.min(i[END], o[START]))), y); pen.lineTo(Math.max(left, x(o[START])), high); pen.stroke();
  }
}
