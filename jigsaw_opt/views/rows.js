// Rows: a lane each, below a row for its server and one for its rack, which fold. Where one lane is all, it needs no such row.
const MANY = 400, GROUPS = new Map(), folded = new Set();
let rows = [];

// The longest interval of a lane bounds how far left of the view one can start and still reach into it.
for (const lane of data.lanes) {
  let longest = 0, taken = 0, most = 0;
  for (const i of lane.intervals) {
    const lasts = i[END] - i[START];
    if (lasts > longest) longest = lasts;
    taken += lasts;
    if (lane.kind === "memory") most = Math.max(most, i[BYTES]);
    else if (!(data.jobs[i[JOB]].last >= i[END])) data.jobs[i[JOB]].last = i[END];
  }
  lane.longest = longest;
  lane.busy = lane.kind === "memory" ? most / Math.max(1, lane.bytes) : taken / end;
  lane.isLink = lane.kind.includes("link");
  lane.server = lane.isLink ? "" : lane.name.slice(0, lane.name.lastIndexOf("/"));
}

function firstReaching(intervals, moment) {
  let low = 0, high = intervals.length;
  while (low < high) { const middle = (low + high) >> 1; intervals[middle][START] < moment ? low = middle + 1 : high = middle; }
  return low;
}

// Time between two moments in which a lane is taken.
function busyIn(lane, from, to) {
  let sum = 0;
  for (let k = firstReaching(lane.intervals, from - lane.longest); k < lane.intervals.length && lane.intervals[k][START] < to; k++)
    sum += Math.max(0, Math.min(to, lane.intervals[k][END]) - Math.max(from, lane.intervals[k][START]));
  return sum;
}

// Share of the lanes that is taken in each of so many equal parts of a stretch of time. An interval adds to the parts
// that it begins and ends in, and a step up and down to those between, so its length costs nothing.
function busyParts(lanes, from, to, parts) {
  const found = new Float64Array(parts), steps = new Float64Array(parts + 1), scale = parts / (to - from);
  for (const lane of lanes) {
    const all = lane.intervals;
    for (let k = firstReaching(all, from - lane.longest); k < all.length && all[k][START] < to; k++) {
      const a = (Math.max(from, all[k][START]) - from) * scale, b = (Math.min(to, all[k][END]) - from) * scale;
      if (b <= a) continue;
      const first = Math.floor(a), last = Math.min(parts - 1, Math.floor(b));
      if (first === last) { found[first] += b - a; continue; }
      found[first] += first + 1 - a; found[last] += b - last;
      steps[first + 1]++; steps[last]--;
    }
  }
  let full = 0;
  return found.map((share, part) => (share + (full += steps[part])) / lanes.length);
}

function grouped() {
  const rackOf = lane => lane.isLink ? "" : data.racks[lane.server] ?? "";
  const racks = [...new Set(data.lanes.filter(lane => !lane.isLink).map(rackOf)), ""];
  data.lanes.sort((a, b) => a.isLink - b.isLink || racks.indexOf(rackOf(a)) - racks.indexOf(rackOf(b)));
  for (const lane of data.lanes) {
    const path = lane.isLink ? [["⇄", "links"]] : [...(rackOf(lane) ? [["r/" + rackOf(lane), "rack " + rackOf(lane)]] : []), ["s/" + lane.server, lane.server]];
    lane.path = path.map(([key, name], depth) => {
      if (!GROUPS.has(key)) GROUPS.set(key, { key, name, depth, lanes: [] });
      const group = GROUPS.get(key);
      if (lane.kind !== "memory" && !lane.kind.startsWith("measured")) group.lanes.push(lane);
      return group;
    });
  }
  for (const group of GROUPS.values()) group.busy = group.lanes.reduce((sum, lane) => sum + lane.busy, 0) / Math.max(1, group.lanes.length);
  if (data.lanes.length > MANY) fold("s/");
}

// Which rows there are now: of folded groups the head alone, and of a job that is shown alone only its lanes.
function layOut() {
  const heads = new Set();
  rows = [];
  for (const lane of data.lanes) {
    lane.row = -1;
    if (view.only !== null && (lane.kind === "memory" || !lane.intervals.some(i => i[JOB] === view.only))) continue;
    const path = lane.path.filter(group => group.lanes.length > 1);
    const shut = path.findIndex(group => folded.has(group.key));
    for (const group of shut < 0 ? path : path.slice(0, shut + 1))
      if (!heads.has(group.key)) { heads.add(group.key); rows.push({ group }); }
    if (shut < 0) { lane.row = rows.length; rows.push({ lane, depth: path.length }); }
  }
}

// Fold all groups whose key begins so, and no others.
function fold(kind) {
  folded.clear();
  for (const group of GROUPS.values()) if (kind && group.key.startsWith(kind) && group.lanes.length > 1) folded.add(group.key);
}
function foldNext() {
  const kinds = ["", "s/", "r/"].filter(kind => !kind || [...GROUPS.values()].some(it => it.key.startsWith(kind) && it.lanes.length > 1));
  const now = kinds.findIndex(kind => kind && [...folded].some(key => key.startsWith(kind)));
  const next = kinds[(Math.max(0, now) + 1) % kinds.length];
  fold(next);
  view.top = 0;
  layOut(); redraw();
  say({ "": "every lane is shown", "s/": "servers are folded", "r/": "racks are folded" }[next]);
}
function toggle(group) {
  folded.has(group.key) ? folded.delete(group.key) : folded.add(group.key);
  layOut(); redraw();
}
// A lane is brought into sight: what hides it unfolds.
function reveal(lane) {
  for (const group of lane.path) folded.delete(group.key);
  layOut();
}
