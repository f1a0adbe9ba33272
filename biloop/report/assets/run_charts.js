// The charts of the runs, and the legend that shows or hides a scheme in all of them.

const COSTS = {
  cost: "gradients + products",
  gradients: "gradients",
  products: "products",
  seconds: "seconds",
  k: "outer steps k",
};
const MEASURES = {
  k: ["k", count],
  gradients: ["gradients", count],
  products: ["products", count],
  seconds: ["seconds", short],
  value: ["value", fourDigits],
  grad_norm2: ["‖∇Φ‖²", short],
  inner_residual: ["inner residual", short],
  linear_residual: ["linear residual", short],
};

const charts = []; // all of the page
const hidden = new Set(); // positions of schemes
const legendButtons = []; // [position, button]

function redraw() {
  for (const [i, button] of legendButtons) button.setAttribute("aria-pressed", !hidden.has(i));
  for (const chart of charts) chart.draw();
}

function toggle(i) {
  if (!hidden.delete(i)) hidden.add(i);
  redraw();
}

/** Show this scheme alone; if it is alone already, show all. */
function isolate(i) {
  const alone = !hidden.has(i) && hidden.size === schemes.length - 1;
  hidden.clear();
  if (!alone) for (const j of schemes.keys()) if (j !== i) hidden.add(j);
  redraw();
}

/** Let the curves of one scheme stand out; null: of none. */
function emphasise(i) {
  for (const curve of document.querySelectorAll(".curve")) {
    curve.classList.toggle("faded", i !== null && curve.dataset.id !== String(i));
  }
}

function onNameOf(i) {
  return { onpointerenter: () => emphasise(i), onpointerleave: () => emphasise(null) };
}

function legend() {
  const title = "click: show or hide; double click: this one alone";
  const buttons = schemes.map(({ name }, i) => {
    const events = { ...onNameOf(i), onclick: () => toggle(i), ondblclick: () => isolate(i) };
    const button = html("button", { type: "button", title, ...events }, swatch(look(i)), name);
    legendButtons.push([i, button]);
    return button;
  });
  return html("div", { class: "legend", role: "group", "aria-label": "schemes shown" }, ...buttons);
}

/** A curve for each seed of each scheme that is shown: the middle one thick, the others thin. */
function curvesOf(xKey, yKey, allSeeds) {
  const curve = (i, run, s) => ({
    id: i,
    name: schemes[i].name,
    look: look(i),
    x: run[xKey],
    y: run[yKey],
    thin: s !== schemes[i].middle,
    outlier: schemes[i].status === "diverged",
    describe: (j) => describe(run, j, `${s + 1} of ${schemes[i].seeds.length}`),
  });
  return [...schemes.keys()]
    .filter((i) => !hidden.has(i))
    .flatMap((i) => schemes[i].seeds.map((run, s) => curve(i, run, s)))
    .filter((each) => allSeeds || !each.thin);
}

function describe(run, j, seed) {
  const rows = Object.entries(MEASURES).map(([key, [name, show]]) => [name, show(run[key][j])]);
  return severalSeeds ? [["seed", seed], ...rows] : rows;
}

/** Whether a column is better seen on a logarithmic scale: positive, over more than a decade. */
function spansDecades(key) {
  const values = schemes
    .filter((scheme) => scheme.status !== "diverged")
    .flatMap((scheme) => scheme.seeds.flatMap((run) => run[key]))
    .filter((value) => value !== null);
  const [low, high] = extremes(values);
  return key !== "value" || (low > 0 && high > 10 * low);
}

/** Charts side by side that share the x axis; `view` is what their controls say. */
function showCharts(section, view, panels) {
  const figures = html("div", { class: "charts" });
  const own = panels.map((panel) => addChart(figures, view, panel));
  const change = (name) => (value) => {
    view[name] = value;
    for (const chart of own) chart.draw();
  };
  const toolbar = html(
    "div",
    { class: "toolbar" },
    choice("against", `${section}-x`, COSTS, view.x, change("x")),
    onOff("logarithmic", view.xLog, change("xLog")),
    ...(severalSeeds ? [onOff("all seeds", view.allSeeds, change("allSeeds"))] : []),
  );
  byId(section).append(toolbar, legend(), figures);
}

function addChart(figures, view, { key, title, guide }) {
  const y = { label: title, log: spansDecades(key) };
  const scale = onOff("logarithmic", y.log, (value) => {
    y.log = value;
    chart.draw();
  });
  const caption = html("figcaption", {}, html("h3", {}, title), scale);
  const figure = html("figure", { class: "chart", id: key }, caption);
  const chart = new LineChart(figure, `${title} of each scheme`, 380, () => ({
    curves: curvesOf(view.x, key, view.allSeeds),
    x: { label: COSTS[view.x], log: view.xLog },
    y,
    guide,
  }));
  figures.append(figure);
  charts.push(chart);
  return chart;
}

function showProgress() {
  const seeds = severalSeeds ? "Thick: the seed in the middle; thin: the others. " : "";
  const how =
    "Point at a curve, or use the arrow keys, to read it; drag to zoom, double click to see all " +
    "again. Click on a scheme to hide it.";
  byId("progress").append(html("p", { class: "note" }, seeds + how));
  showCharts("progress", { x: "cost", xLog: true, allSeeds: true }, [
    { key: "grad_norm2", title: "‖∇Φ(x)‖²", guide: { value: target, label: epsilon } },
    { key: "value", title: "value f(x, y)" },
  ]);
}

function showResiduals() {
  showCharts("residuals", { x: "k", xLog: true, allSeeds: false }, [
    { key: "inner_residual", title: "N-loop: ‖∇_y g(x, y)‖" },
    { key: "linear_residual", title: "Q-loop: ‖Hv − b‖" },
  ]);
}
