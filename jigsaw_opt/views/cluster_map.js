// The map: racks as stacks of servers, a server as a row of GPUs; a click or Enter opens the job of a GPU.
const map = $("map"), pen = map.getContext("2d"), HIGHEST = 640, STACK = 16, LABEL = 15, GAP = 10, SLICE = 20000;
const plan = { places: [], size: 0, key: "", drawn: new Int32Array(0) };
let chosen = -1, lit = -1, frame = 0;

// Places of all servers for a side of a GPU; a rack with more servers than a stack has continues in the next, and these are called by their first server.
function placed(size, width) {
  const { name, rack, first, end } = seen.servers, called = size >= 12 ? 64 : 0, stacks = [];
  const byRack = new Map();
  name.forEach((_, k) => byRack.get(rack[k])?.push(k) ?? byRack.set(rack[k], [k]));
  for (const [number, all] of byRack)
    for (let at = 0; at < all.length; at += STACK) stacks.push([shown(all.length > STACK ? name[all[at]] + " …" : seen.racks[number] || "servers"), all.slice(at, at + STACK)]);
  const places = [], labels = [];
  let left = 4, top = 2, deep = 0;
  for (const [label, servers] of stacks) {
    const wide = Math.max(called + size * servers.reduce((most, k) => Math.max(most, end[k] - first[k]), 1), 30);
    if (left > 4 && left + wide > width - 4) { left = 4; top += deep + GAP; deep = 0; }
    labels.push([label, left, top + 11, wide]);
    servers.forEach((k, row) => { places[k] = [left + called, top + LABEL + row * (size + 1)]; });
    left += wide + GAP;
    deep = Math.max(deep, LABEL + servers.length * (size + 1));
  }
  return { places, labels, size, called, high: top + deep + 4 };
}

function layOut() {
  const width = map.clientWidth, key = [width, seen.servers.name.length, seen.gpus.job.length].join();
  if (plan.key === key) return;
  let found = null;
  for (const size of [22, 18, 15, 12, 10, 8, 7, 6, 5, 4, 3]) if ((found = placed(size, width)).high <= HIGHEST) break;
  Object.assign(plan, found, { key });
  map.style.height = plan.high + "px";
  drawAnew();
}

// A sign over what is out of use, so that no state is told by a colour alone.
function sign(path, state, x, y, size) {
  if (state !== CORDONED) { path.moveTo(x, y + size); path.lineTo(x + size, y); }
  if (state === DOWN) { path.moveTo(x, y); path.lineTo(x + size, y + size); }
  if (state === CORDONED) { path.moveTo(x, y + size / 2); path.lineTo(x + size, y + size / 2); }
}

// The half of a GPU below its diagonal, for the second of two jobs that share it.
function half(brush, colour, x, y, size) {
  brush.fillStyle = colour;
  brush.beginPath(); brush.moveTo(x, y + size); brush.lineTo(x + size, y); brush.lineTo(x + size, y + size); brush.fill();
}

// The canvas without GPUs, but with labels; all GPUs are then to be drawn.
function clean(scale) {
  map.width = Math.round(map.clientWidth * scale); map.height = Math.round(plan.high * scale);
  pen.setTransform(scale, 0, 0, scale, 0, 0);
  pen.font = "11px system-ui, sans-serif";
  pen.fillStyle = css("--dim");
  for (const [label, x, y, wide] of plan.labels) pen.fillText(label, x, y, wide);
  pen.fillStyle = css("--ink");
  if (plan.called) seen.servers.name.forEach((name, k) => pen.fillText(shown(name), plan.places[k][0] - plan.called, plan.places[k][1] + (plan.size - 1) / 2 + 4, plan.called - 6));
  plan.drawn = new Int32Array(seen.gpus.job.length).fill(-1);
  plan.ring = chosen;
}

// Draws the GPUs that look other than they did; those of another view in slices, so that no frame is long.
function draw() {
  frame = 0;
  if (!seen) return;
  layOut();
  const isAnew = !plan.drawn.length || plan.ring !== chosen;
  if (isAnew) clean(devicePixelRatio || 1);
  const { places, size, drawn } = plan, side = size - 1, signs = new Path2D(), { state, job, second } = seen.gpus;
  const colours = [...data.colours, css("--line")], looks = seen.list.map(one => one.on.length ? colourOf(one.name) : data.colours.length);
  const light = lit >= 0 ? lit : chosen >= 0 ? job[chosen] : -1, lookOf = k => k < 0 ? data.colours.length : looks[k];
  let left = isAnew ? drawn.length + 1 : SLICE;
  for (let gpu = 0; gpu < drawn.length && left; gpu++) {
    const dim = light >= 0 && job[gpu] !== light && second[gpu] !== light, first = lookOf(job[gpu]), other = second[gpu] < 0 ? first : lookOf(second[gpu]);
    const look = ((first * 256 + other) * 4 + state[gpu]) * 2 + dim, k = seen.serverOf[gpu];
    if (drawn[gpu] === look) continue;
    const x = places[k][0] + (gpu - seen.servers.first[k]) * size, y = places[k][1];
    drawn[gpu] = look;
    left--;
    if (dim) pen.clearRect(x, y, side, side);
    pen.globalAlpha = dim ? 0.35 : 1;
    pen.fillStyle = colours[first];
    pen.fillRect(x, y, side, side);
    if (other !== first) half(pen, colours[other], x, y, side);
    if (state[gpu] !== UP) sign(signs, state[gpu], x + 0.5, y + 0.5, side - 1);
  }
  pen.globalAlpha = 1; pen.strokeStyle = css("--ink"); pen.lineWidth = 1;
  pen.stroke(signs);
  if (chosen >= 0) {
    const k = seen.serverOf[chosen], [x, y] = places[k];
    pen.lineWidth = 2; pen.strokeStyle = css("--accent");
    pen.strokeRect(x + (chosen - seen.servers.first[k]) * size - 2, y - 2, side + 4, side + 4);
  }
  if (!left) redraw();
}
const redraw = () => { frame ||= requestAnimationFrame(draw); };
const drawAnew = () => { plan.drawn = new Int32Array(0); redraw(); };

function gpuAt(x, y) {
  for (let k = 0; k < plan.places.length; k++) {
    const [left, top] = plan.places[k], gpu = seen.servers.first[k] + Math.floor((x - left) / plan.size);
    if (y >= top && y < top + plan.size && gpu >= seen.servers.first[k] && gpu < seen.servers.end[k]) return gpu;
  }
  return -1;
}

function aboutGpu(gpu) {
  const on = [seen.gpus.job[gpu], seen.gpus.second[gpu]].filter(k => k >= 0).map(k => seen.list[k]), k = seen.serverOf[gpu];
  return gpuName(gpu) + " (" + shown(seen.servers.type[k]) + ", rack " + shown(seen.racks[seen.servers.rack[k]] || "–") + "): " + SERVER_STATES[seen.gpus.state[gpu]] + ", " +
    (on.length ? (on.length > 1 ? "jobs " : "job ") + on.map(job => shown(job.name) + " (" + shown(job.model) + ", " + counted(job.gpus, "GPU") + ")").join(" and ") : "idle");
}
const at = event => { const box = map.getBoundingClientRect(); return gpuAt(event.clientX - box.left, event.clientY - box.top); };
const openAt = gpu => { if (gpu >= 0 && seen.gpus.job[gpu] >= 0) openJob(seen.list[seen.gpus.job[gpu]].name); };

map.addEventListener("pointermove", event => {
  const gpu = seen ? at(event) : -1, job = gpu < 0 ? -1 : seen.gpus.job[gpu];
  tell(gpu < 0 ? "" : aboutGpu(gpu), event);
  if (job !== lit) { lit = job; redraw(); }
});
map.addEventListener("pointerleave", event => { tell("", event); lit = -1; redraw(); });
map.addEventListener("click", event => { if (seen) openAt(chosen = at(event)); redraw(); });
map.addEventListener("keydown", event => {
  if (!seen) return;
  const count = seen.gpus.job.length, { first, end } = seen.servers, k = seen.serverOf[Math.max(0, chosen)];
  const beside = step => { const to = Math.max(0, Math.min(first.length - 1, k + step)); return Math.min(end[to] - 1, first[to] + Math.max(0, chosen) - first[k]); };
  const next = { ArrowLeft: () => chosen - 1, ArrowRight: () => chosen + 1, ArrowUp: () => beside(-1), ArrowDown: () => beside(1), Home: () => 0, End: () => count - 1 }[event.key];
  if (next) { chosen = Math.max(0, Math.min(count - 1, next())); $("said").textContent = aboutGpu(chosen); redraw(); }
  else if (event.key === "Enter") openAt(chosen);
  else if (event.key === "Escape") { chosen = -1; redraw(); }
  else return;
  event.preventDefault();
});
new ResizeObserver(redraw).observe(map);
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { showSigns(); drawAnew(); });

function showSigns() {
  $("signs").replaceChildren(...["a job (a colour each)", "idle", "down", "drained", "cordoned", "two jobs that share a GPU"].map((word, k) => {
    const part = element("span"), small = element("canvas", "", { width: 13, height: 13 }), brush = small.getContext("2d"), path = new Path2D();
    small.setAttribute("aria-hidden", "true");
    brush.fillStyle = k % 5 ? css("--line") : data.colours[0]; brush.fillRect(0, 0, 13, 13);
    if (k === 5) half(brush, data.colours[1], 0, 0, 13);
    else if (k > 1) { sign(path, k - 1, 0, 0, 13); brush.strokeStyle = css("--ink"); brush.stroke(path); }
    part.append(small, word);
    return part;
  }));
}
