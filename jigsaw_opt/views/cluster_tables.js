// Tables of servers and jobs: a page of rows each, of those that have what was typed in. Rows are filled in place, so that focus and the place of a reader stay.
const PAGE = 25, tables = [];

// `columns`: title, text of a row, and whether it is a number. The first one names the row; `open` is called with a row.
function addTable(id, named, columns, open) {
  const box = $(id), table = element("table"), body = table.createTBody(), head = table.createTHead().insertRow();
  const find = element("input", "", { type: "search", placeholder: "find", oninput: () => { it.page = 0; fill(it); } });
  const turn = step => element("button", step < 0 ? "‹" : "›", { type: "button", onclick: () => { it.page += step; fill(it); } });
  const it = { rows: [], page: 0, find, body, columns, open, where: element("span", "", { className: "dim" }), back: turn(-1), on: turn(1) };
  find.setAttribute("aria-label", "find in " + named);
  it.back.setAttribute("aria-label", "rows before, of " + named); it.on.setAttribute("aria-label", "rows after, of " + named);
  for (const [title, , number] of columns) head.append(element("th", title, { scope: "col", className: number ? "number" : "" }));
  table.setAttribute("aria-labelledby", id + "-title");
  const line = element("div", undefined, { className: "line" }), scroll = element("div", undefined, { className: "table", tabIndex: 0 });
  scroll.setAttribute("role", "region"); scroll.setAttribute("aria-label", named);
  line.append(find, it.back, it.on, it.where);
  scroll.append(table);
  box.append(line, scroll);
  body.addEventListener("click", event => { const line = event.target.closest("button")?.closest("tr"); if (line) open(line.row); });
  tables.push(it);
  return it;
}

function madeCell(it, line, c) {
  const cell = line.appendChild(element(c ? "td" : "th", undefined, { className: it.columns[c][2] ? "number" : "" }));
  if (c === 0) cell.scope = "row";
  if (c === 0 && it.open) cell.append(element("button", "", { type: "button" }));
  return cell;
}

function fill(it) {
  const words = it.find.value.trim().toLowerCase();
  const found = words ? it.rows.filter(row => it.columns.some(([, text]) => String(text(row)).toLowerCase().includes(words))) : it.rows;
  it.page = Math.max(0, Math.min(it.page, Math.ceil(found.length / PAGE) - 1));
  const rows = found.slice(it.page * PAGE, it.page * PAGE + PAGE), { body } = it;
  const focused = body.contains(document.activeElement) ? document.activeElement.textContent : null;
  while (body.rows.length > rows.length) body.deleteRow(-1);
  rows.forEach((row, k) => {
    const line = body.rows[k] ?? body.insertRow();
    line.row = row;
    it.columns.forEach(([, text], c) => {
      const cell = line.cells[c] ?? madeCell(it, line, c), place = cell.firstElementChild ?? cell, told = String(text(row));
      if (place.textContent !== told) place.textContent = told;
    });
  });
  if (focused !== null && document.activeElement.textContent !== focused) [...body.querySelectorAll("button")].find(one => one.textContent === focused)?.focus();
  it.where.textContent = found.length ? `${it.page * PAGE + 1} to ${it.page * PAGE + rows.length} of ${found.length.toLocaleString("en")}` : words ? "none has this" : "none";
  it.back.disabled = it.page === 0;
  it.on.disabled = (it.page + 1) * PAGE >= found.length;
}

// A server, by number: its GPUs, and who is there.
const gpusOf = k => Array.from({ length: seen.servers.end[k] - seen.servers.first[k] }, (_, gpu) => seen.servers.first[k] + gpu);
const idleOn = k => gpusOf(k).filter(gpu => seen.gpus.job[gpu] < 0 && seen.gpus.state[gpu] === UP).length;
const jobsOn = k => [...new Set(gpusOf(k).flatMap(gpu => [seen.gpus.job[gpu], seen.gpus.second[gpu]]))].filter(job => job >= 0).map(job => shown(seen.list[job].name)).join(", ");
function stateOf(k) {
  const state = seen.servers.state[k], out = gpusOf(k).filter(gpu => seen.gpus.state[gpu] !== UP).length;
  return SERVER_STATES[state] + (out && state === UP ? `, ${counted(out, "GPU")} down` : "");
}

const starts = new Map();
const startOf = job => starts.get(job.name)?.text ?? "";
// What matters most stands first, for narrow windows.
addTable("servers", "servers", [["server", k => shown(seen.servers.name[k])], ["state", stateOf], ["GPUs", k => gpusOf(k).length, true], ["idle", idleOn, true], ["jobs", jobsOn],
  ["rack", k => shown(seen.racks[seen.servers.rack[k]])], ["type", k => shown(seen.servers.type[k])]]);
addTable("queue", "the queue", [["job", job => shown(job.name)], ["GPUs", job => job.gpus, true], ["why", job => shown(job.reason)], ["expected start", startOf],
  ["waits since", job => lasting(seen.time_us - job.submitted), true], ["weight", job => job.weight, true], ["queue", job => shown(job.queue)]], job => openJob(job.name));
addTable("running", "running jobs", [["job", job => shown(job.name)], ["GPUs", job => job.on.length || job.gpus, true], ["progress", job => percent(job.progress), true],
  ["model", job => shown(job.model)], ["queue", job => shown(job.queue)], ["on", job => [...new Set(job.on.map(gpu => seen.serverOf[gpu]))].map(k => shown(seen.servers.name[k])).join(", ")]], job => openJob(job.name));

function fillAll() {
  tables[0].rows = [...seen.servers.name.keys()];
  tables[1].rows = seen.waiting.map(k => seen.list[k]);
  tables[2].rows = seen.list.filter(job => job.state === RUNNING);
  tables.forEach(fill);
}
