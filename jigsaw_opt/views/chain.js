// What a block or transfer begins after, and the chain that leads to the end of a job.
const pairs = new Map();
function pairsOf(job) {
  if (!pairs.size) for (const lane of data.lanes) {
    if (lane.kind !== "memory") for (const i of lane.intervals) pairs.has(i[JOB]) ? pairs.get(i[JOB]).push([lane, i]) : pairs.set(i[JOB], [[lane, i]]);
  }
  return pairs.get(job) ?? [];
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

// Back from what ends last, of the chosen job or of all, as long as something ends as it begins.
function showChain() {
  const chain = new Set(), from = view.job === null ? data.jobs.flatMap((_, job) => pairsOf(job)) : pairsOf(view.job);
  let step = from.reduce((last, it) => !last || it[1][END] > last[1][END] ? it : last, null);
  const until = step ? step[1][END] : 0;
  let since = until;
  while (step) {
    chain.add(step[1]); since = step[1][START];
    step = meeting(...step, false).find(([, o]) => !chain.has(o));
  }
  view.chain = chain;
  canvas.dataset.chain = chain.size;
  $("said").textContent = `chain without a gap: ${chain.size} steps, ${span(since)} → ${span(until)}`;
}
function hideChain() { view.chain = new Set(); $("said").textContent = ""; }
