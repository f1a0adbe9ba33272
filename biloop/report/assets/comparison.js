// The report, section by section.

function showHead() {
  const { problem, title, budget } = comparison;
  const facts = {
    problem: problem.name,
    "dimension of x": count(problem.dim_x),
    "dimension of y": count(problem.dim_y),
    samples: problem.samples === null ? null : count(problem.samples),
    "target ‖∇Φ(x)‖² ≤ ε": epsilon,
    "budget of a run": `${count(budget)} gradients + products`,
    seeds: String(Math.max(0, ...schemes.map((scheme) => scheme.seeds.length))),
  };
  byId("title").append(title);
  byId("description").append(problem.description);
  for (const [name, text] of Object.entries(facts)) {
    if (text === null) continue;
    byId("facts").append(html("div", {}, html("dt", {}, name), html("dd", {}, text)));
  }
}

function showVerdict() {
  const { verdict, recommendation } = comparison;
  byId("verdict").append(html("ul", {}, ...verdict.map(finding)));
  if (recommendation === "") return; // no scheme got anywhere
  byId("verdict").append(
    html("p", { class: "label" }, "The code to paste"),
    codeBlock(recommendation, "the recommended code"),
  );
}

/** A sentence; what stands before a colon is its answer. */
function finding(sentence) {
  const [answer] = sentence.match(/^[^:]*:/) ?? [""];
  return html("li", {}, html("strong", {}, answer), sentence.slice(answer.length));
}

// the heat map

function showGrid() {
  const { grid } = comparison;
  if (grid === null) return byId("grid").remove();
  const [least, most] = extremes(grid.cost.flat().filter((cost) => cost !== null));
  const note =
    `Gradients + products until ‖∇Φ(x)‖² ≤ ${epsilon}, for AID with N inner and Q linear steps; ` +
    "the stronger the colour, the cheaper. For the loops in the table above it is the median over " +
    "the starts, for the others that of the first start.";
  const row = (N, i) => {
    const cells = grid.cost[i].map((cost) => heatCell(cost, least, most));
    return html("tr", {}, html("th", { scope: "row" }, `N = ${N}`), ...cells);
  };
  const columns = grid.Q.map((Q) => html("th", { scope: "col" }, `Q = ${Q}`));
  const head = html("thead", {}, html("tr", {}, html("th"), ...columns));
  const body = html("tbody", {}, ...grid.N.map(row));
  byId("grid").append(
    html("p", { class: "note" }, note),
    scrollingTable("cost for each N and Q", head, body),
  );
}

function heatCell(cost, least, most) {
  if (cost === null) return html("td", { class: "unreached" }, "not reached");
  const cheapest = cost === least;
  const times = cheapest ? "cheapest" : ratio(cost, least);
  const cell = html("td", { class: cheapest && "cheapest" }, count(cost), html("small", {}, times));
  const cheap = cheapest ? 1 : Math.log(most / cost) / Math.log(most / least);
  cell.style.setProperty("--cheap", cheap);
  return cell;
}

// the theory

function showTheory() {
  const { certificates } = comparison;
  if (certificates.length === 0) return byId("theory").remove();
  const figures = html("div", { class: "charts" });
  byId("theory").append(figures);
  for (const certificate of certificates) {
    const { scheme, statement } = certificate;
    const caption = html("figcaption", {}, html("h3", {}, scheme));
    const subtitle = html("p", { class: "note" }, statement);
    const figure = html("figure", { class: "chart" }, caption, subtitle);
    const title = `${scheme}: the bound of ${statement}, and the measured mean`;
    charts.push(new LineChart(figure, title, 270, () => certificateCurves(certificate)));
    figure.append(html("p", { class: "note" }, tightness(certificate)));
    figures.append(figure);
  }
}

function certificateCurves({ scheme, K, bound, measured }) {
  const i = Math.max(0, schemes.findIndex(({ name }) => name === scheme));
  const describe = (j) => [
    ["K", count(K[j])],
    ["bound", short(bound[j])],
    ["measured", short(measured[j])],
  ];
  const curves = [
    { name: "bound", look: { ...look(i), dash: "6 4" }, y: bound },
    { name: "measured", look: { ...look(i), dash: "" }, y: measured },
  ];
  return {
    curves: curves.map((curve) => ({ id: i, x: K, describe, ...curve })),
    x: { label: "K", log: true },
    y: { label: "mean of ‖∇Φ‖²", log: true },
  };
}

/** How far the bound is from the measurement, in words. */
function tightness({ K, bound, measured }) {
  const above = K.find((_, j) => bound[j] !== null && measured[j] > bound[j]);
  if (above !== undefined) return `At K = ${count(above)} the measured mean is above the bound.`;
  const j = K.length - 1;
  return `At K = ${count(K[j])} the bound is ${ratio(bound[j], measured[j])} the measured mean.`;
}

// how it was made

function showReproduce() {
  const { command, python, settings, versions } = comparison;
  const column = (title, facts) =>
    html("div", {}, html("p", { class: "label" }, title), factsTable(facts));
  const code = { "On the command line": command, "In Python": python };
  for (const [title, text] of Object.entries(code)) {
    if (text === "") continue; // it was not made on the command line
    byId("reproduce").append(html("p", { class: "label" }, title), codeBlock(text, title));
  }
  byId("reproduce").append(
    html("div", { class: "columns" }, column("Settings", settings), column("Versions", versions)),
  );
}

function factsTable(facts) {
  const rows = Object.entries(facts).map(([name, value]) =>
    html("tr", {}, html("th", { scope: "row" }, name), html("td", {}, short(value, 6))),
  );
  return html("table", { class: "facts-table" }, html("tbody", {}, ...rows));
}

showHead();
showVerdict();
showSchemes();
showProgress();
showResiduals();
showGrid();
showTheory();
showReproduce();
redraw();
