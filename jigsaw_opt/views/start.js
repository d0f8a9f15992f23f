// The page as it opens.
const gpus = data.lanes.filter(lane => lane.kind === "gpu");
grouped();
layOut();
const busy = gpus.reduce((sum, lane) => sum + lane.busy, 0) / Math.max(1, gpus.length);

pen.font = "12px system-ui, sans-serif";
const names = [...data.lanes.map(lane => shownName({ lane, depth: lane.path.length })), ...rows.map(shownName)].sort((a, b) => b.length - a.length);
left = Math.min(240, Math.max(90, 0.3 * innerWidth), 62 + names.slice(0, 50).reduce((most, name) => Math.max(most, pen.measureText(name).width), 28));

$("name").textContent = data.name;
const gap = data.objective > data.bound ? 100 * (data.objective - data.bound) / data.objective : 0;
const proven = data.bound === null ? [] : [["bound", span(data.bound)], ["gap", gap.toFixed(2) + " %"]];
const facts = [[data.objectiveName.replaceAll("_", " "), span(data.objective)], ...proven, ["status", data.status], ["solver", data.solver],
  ["jobs", data.jobs.length], ...(data.facts.length ? data.facts : [["GPUs busy", (100 * busy).toFixed(1) + " %"]])];
for (const [label, text] of facts) {
  const part = element("span", label + " ");
  part.append(element("b", text), " \u2003"); $("facts").append(part);
}
for (const order of Object.keys(ORDERS)) $("order").append(element("option", order));
listJobs();
$("fold").hidden = ![...GROUPS.values()].some(group => group.lanes.length > 1);
inShort();
new ResizeObserver(redraw).observe($("stage"));
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
draw();
if (data.chosen !== null) { highlight(data.chosen); showChain(); }
reopen();
document.body.dataset.ready = "true";
