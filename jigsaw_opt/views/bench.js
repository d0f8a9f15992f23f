// Solvers on instances: gap profile, gap over time, and tables.
const percent = share => share === null ? "–" : brief(100 * share) + " %";
const DASHES = [undefined, [6, 3], [2, 3], [8, 3, 2, 3]];
const lines = key => data.lines.map((line, k) => ({ label: line.name, values: line[key], colour: "--line" + k % 6, dash: DASHES[k % 4] }));
const seconds = value => brief(value) + " s";

$("about").textContent = data.runs + " runs of " + data.instances.length + " instances";
if (data.runs) {
  addChart("Gap profile: runs that have certified a gap", data.gaps, lines("profile"),
    { label: "certified gap, % (logarithmic)", log: true, sync: "gap", tick: brief, tell: it => brief(it) + " %" },
    { label: "runs, %", most: 100, stepped: true, tick: brief, tell: it => brief(it) + " %" });
  addChart("Certified gap over time, mean of all runs", data.moments, lines("curve"),
    { label: "time, s (logarithmic)", log: true, sync: "time", tick: brief, tell: seconds },
    { label: "gap, %", most: 100, stepped: true, tick: brief, tell: it => brief(it) + " %" });
}

function table(place, heads, rows) {
  const made = element("table"), head = made.createTHead().insertRow();
  for (const [text, kind] of heads) head.append(element("th", text, { scope: "col", className: kind }));
  const body = made.createTBody();
  for (const row of rows) {
    const line = body.insertRow();
    row.forEach(([text, best], k) => line.append(element("td", text, { className: heads[k][1] + (best ? " best" : "") })));
  }
  place.append(made);
}

const told = { share: percent, s: seconds, "": brief };
table($("cells"), [["set", ""], ["solver", ""], ...data.measures.map(it => [it.name, "number"])],
  data.cells.map(cell => [[cell.set], [cell.line], ...data.measures.map(it => [cell[it.key] === null ? "–" : told[it.unit](cell[it.key])])]));
table($("instances"), [["instance", ""], ...data.lines.map(it => [it.name, "number"])], data.instances.map(it => {
  const least = Math.min(...it.gaps.filter(gap => gap !== null));
  return [[it.name], ...it.gaps.map(gap => [percent(gap), gap === least])];
}));
for (const it of data.measures) $("meanings").append(element("dt", it.name), element("dd", it.meaning));
addEventListener("resize", fitCharts);
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", fitCharts);
fitCharts();
document.body.dataset.ready = true;
