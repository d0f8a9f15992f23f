// Charts by uPlot: axes with units, values under the pointer, one line or several.
const brief = value => value === 0 || Math.abs(value) >= 100 ? Math.round(value).toLocaleString("en") : String(+value.toPrecision(3));
const span = value => value === 0 || value >= 1 ? brief(value) + " h" : value >= 1 / 60 ? brief(60 * value) + " min" : brief(3600 * value) + " s";
const charts = [];

// `x` and `y` say what an axis is called and how its ticks and values are written; a line has values, and where there are several a label, colour and dash.
function addChart(name, xs, lines, x, y) {
  const box = element("div", undefined, { className: "chart" });
  box.append(element("h2", name));
  $("charts").append(box);
  const dim = () => css("--dim"), grid = { stroke: () => css("--line"), width: 1 };
  const axis = side => ({ label: side.label, stroke: dim, grid, ticks: grid, font: "11px system-ui", labelFont: "11px system-ui", labelSize: 18, size: side.size,
    values: (_, splits) => splits.map(it => it === null ? "" : side.tick(it)) });
  const series = side => ({ label: side.label, value: (_, it) => it === null || it === undefined ? "–" : side.tell(it) });
  const drawn = line => ({ ...series(y), label: line.label ?? y.label, stroke: () => css(line.colour ?? "--accent"), dash: line.dash, width: 1.5,
    points: { show: it => it.data[0].length < 2 }, paths: y.stepped ? uPlot.paths.stepped({ align: 1 }) : undefined });
  const chart = new uPlot({
    width: box.clientWidth, height: 190, cursor: { sync: { key: x.sync }, drag: { x: true, y: false } },
    scales: { x: { time: false, distr: x.log ? 3 : 1 }, y: { range: (_, low, high) => [0, (y.most || high || 1) * 1.03] } },
    axes: [axis({ ...x, size: 34 }), axis({ ...y, size: 48 })],
    series: [series(x), ...lines.map(drawn)],
  }, [xs, ...lines.map(line => line.values)], box);
  const canvas = chart.root.querySelector("canvas");
  canvas.setAttribute("aria-label", name);
  canvas.setAttribute("role", "img");
  charts.push([chart, box]);
}

function fitCharts() {
  for (const [chart, box] of charts) chart.setSize({ width: box.clientWidth, height: 190 });
}
