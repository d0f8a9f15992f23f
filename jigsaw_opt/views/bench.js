// Solvers on instances: gap profile, gap over time, and tables.
const percent = share => share === null ? "–" : brief(100 * share) + " %";
const DASHES = [undefined, [6, 3], [2, 3], [8, 3, 2, 3]];
const lines = key => data.lines.map((line, k) => ({ label: line.name, values: line[key], colour: "--line" + k % 6, dash: DASHES[k % 4] }));
const seconds = value => brief(value) + " s";

$("about").textContent = data.about;
$("verdicts").append(...data.verdicts.map(text => element("li", text)));
if (data.runs) {
  addChart("Gap profile: runs that have proven a gap", data.gaps, lines("profile"),
    { label: "proven gap, % (logarithmic)", log: true, sync: "gap", tick: brief, tell: it => brief(it) + " %" },
    { label: "runs, %", most: 100, stepped: true, tick: brief, tell: it => brief(it) + " %" });
  const ending = key => data[key].length > 1 && data.lines.some(it => it[key].some(Boolean));
  if (ending("excess")) addChart("Performance profile: runs whose objective is near the best", data.excess, lines("excess"),
    { label: "above the best objective of the instance, % (logarithmic)", log: true, sync: "excess", tick: brief, tell: it => brief(it) + " %" },
    { label: "runs, %", most: 100, stepped: true, tick: brief, tell: it => brief(it) + " %" });
  if (ending("delay")) addChart("Performance profile: time to within 1 % of the best", data.delay, lines("delay"),
    { label: "time by that of the fastest (logarithmic)", log: true, sync: "delay", tick: brief, tell: it => brief(it) + " times" },
    { label: "runs, %", most: 100, stepped: true, tick: brief, tell: it => brief(it) + " %" });
  addChart("Proven gap over time, mean of all runs", data.moments, lines("curve"),
    { label: "time, s (logarithmic)", log: true, sync: "time", tick: brief, tell: seconds },
    { label: "gap, %", most: 100, stepped: true, tick: brief, tell: it => brief(it) + " %" });
}

function table(place, heads, rows) {
  const made = element("table"), head = made.createTHead().insertRow();
  for (const [text, kind, meaning] of heads) head.append(element("th", text, { scope: "col", className: kind, title: meaning || "" }));
  const body = made.createTBody();
  for (const row of rows) {
    const line = body.insertRow();
    row.forEach(([text, best], k) => line.append(element("td", text, { className: heads[k][1] + (best ? " best" : "") })));
  }
  place.append(made);
}

const told = { share: percent, s: seconds, "": brief };
table($("cells"), [["solver", ""], ["set", ""], ...data.measures.map(it => [it.name, "number", it.meaning])],
  data.cells.map(cell => [[cell.line], [cell.set], ...data.measures.map(it => [cell[it.key] === null ? "–" : told[it.unit](cell[it.key])])]));
table($("instances"), [["instance", ""], ...data.lines.map(it => [it.name, "number"])], data.instances.map(it => {
  const least = Math.min(...it.gaps.filter(gap => gap !== null));
  return [[it.name], ...it.gaps.map(gap => [percent(gap), gap === least])];
}));
define($("meanings"), data.measures.map(it => [it.name, it.meaning]));
define($("solvers"), data.solvers);

// What has changed since older runs: less is better, so a ratio above 1 is worse.
function tellAgainst({ folder, level, pairs, unpaired, hosts, changes, least_instances, too_few }) {
  const of = verdict => changes.filter(it => it.verdict === verdict).map(it => it.line + " in " + it.measure);
  const worse = of("worse"), better = of("better"), parts = [];
  if (worse.length) parts.push("Worse: " + worse.join(", ") + ".");
  if (better.length) parts.push("Better: " + better.join(", ") + ".");
  if (!parts.length) parts.push("No clear change.");
  parts.push("Significance level " + percent(level) + ", Holm over all rows; " + pairs + (pairs === 1 ? " pair" : " pairs") + " of runs" + (unpaired ? ", and " + unpaired + " without an older one" : "") + ".");
  if (too_few) parts.push(too_few + " of " + changes.length + (changes.length === 1 ? " row" : " rows") + " can be neither worse nor better, for they have too few instances: it takes " + least_instances + " or more in every row.");
  if (hosts > 1) parts.push(hosts + " machines made them, and each takes its own time for the same work.");
  $("older").textContent = "Against " + folder;
  $("verdict").textContent = parts.join(" ");
  const ratio = value => value === null ? "–" : value.toFixed(4), chance = value => String(+value.toPrecision(3));
  table($("changes"), [["solver", ""], ["measure", ""], ["instances", "number"], ["better", "number"], ["worse", "number"], ["new / old", "number"],
    ["95 % interval", "number"], ["p", "number"], ["p, Holm", "number"], ["verdict", ""]],
    changes.map(it => [it.line, it.measure, it.instances, it.better, it.worse, ratio(it.ratio), it.low === null ? "–" : ratio(it.low) + " … " + ratio(it.high),
      chance(it.p), chance(it.adjusted_p), it.verdict].map(text => [text, it.verdict === "worse"])));
  $("against").hidden = false;
}
if (data.against) tellAgainst(data.against);
addEventListener("resize", fitCharts);
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", fitCharts);
fitCharts();
document.body.dataset.ready = true;
