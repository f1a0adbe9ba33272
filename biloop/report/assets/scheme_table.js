// The table of schemes, sorted by any of its columns.

const REACHED = "until ‖∇Φ‖² ≤ ε";
const AT_END = "at the end";
const fourDigits = (value) => short(value, 4);
const COLUMNS = [
  { key: "name", title: "scheme", words: true },
  { key: "N", title: "N", show: short },
  { key: "Q", title: "Q", show: short },
  { key: "outer_step", title: "β", show: short },
  { key: "status", title: "outcome", words: true },
  { key: "cost_to_target", title: "grad. + prod.", show: count, group: REACHED, best: true },
  { key: "gradients_to_target", title: "gradients", show: count, group: REACHED, best: true },
  { key: "products_to_target", title: "products", show: count, group: REACHED, best: true },
  { key: "seconds_to_target", title: "seconds", show: short, group: REACHED, best: true },
  { key: "value", title: "value", show: fourDigits, group: AT_END, best: true },
  { key: "grad_norm2", title: "‖∇Φ‖²", show: short, group: AT_END, best: true },
  { key: "steps", title: "steps", show: count, group: AT_END },
  { key: "gradients", title: "gradients", show: count, group: AT_END },
  { key: "products", title: "products", show: count, group: AT_END },
  { key: "seconds", title: "seconds", show: short, group: AT_END },
];
COLUMNS.forEach((column, c) => (column.startsGroup = column.group !== COLUMNS[c - 1]?.group));
let sorting = { key: "cost_to_target", direction: 1 };

function showSchemes() {
  const body = html("tbody");
  const headings = COLUMNS.map((column) => heading(column, () => fillRows(body, headings)));
  const head = html("thead", {}, html("tr", {}, ...groupHeadings()), html("tr", {}, ...headings));
  fillRows(body, headings);
  byId("schemes").append(scrollingTable("table of schemes", head, body), codeOfSchemes());
}

function codeOfSchemes() {
  const blocks = schemes.flatMap(({ name, code }) => [
    html("p", { class: "label" }, name),
    codeBlock(code, `the code of ${name}`),
  ]);
  return html("details", {}, html("summary", {}, "The code of each scheme"), ...blocks);
}

/** One cell above all columns of a group. */
function groupHeadings() {
  const groups = [...new Set(COLUMNS.map((column) => column.group))];
  return groups.map((group) => {
    const colspan = COLUMNS.filter((column) => column.group === group).length;
    return html("th", { colspan, class: group && "starts-group" }, group || "");
  });
}

function heading({ key, title, words, startsGroup }, changed) {
  const sort = () => {
    sorting = { key, direction: sorting.key === key ? -sorting.direction : 1 };
    changed();
  };
  const style = classes(words && "words", startsGroup && "starts-group");
  const button = html("button", { type: "button", onclick: sort }, title);
  return html("th", { scope: "col", class: style, "data-key": key }, button);
}

/** Numbers before words, and what does not exist last in both directions. */
function compareBy({ key, direction }) {
  const rank = (value) => (value === null ? 2 : typeof value === "string" ? 1 : 0);
  return (i, j) => {
    const [a, b] = [schemes[i][key], schemes[j][key]];
    if (rank(a) !== rank(b)) return rank(a) - rank(b);
    return a === b ? i - j : direction * (a < b ? -1 : 1);
  };
}

function fillRows(body, headings) {
  const direction = sorting.direction > 0 ? "ascending" : "descending";
  for (const cell of headings) {
    cell.setAttribute("aria-sort", cell.dataset.key === sorting.key ? direction : "none");
  }
  const order = [...schemes.keys()].sort(compareBy(sorting));
  const row = (i) => html("tr", onNameOf(i), ...COLUMNS.map((column) => tableCell(i, column)));
  body.replaceChildren(...order.map(row));
}

function tableCell(i, column) {
  const scheme = schemes[i];
  if (column.key === "name") {
    return html("th", { scope: "row", class: "words" }, swatch(look(i)), scheme.name);
  }
  if (column.key === "status") {
    const style = classes("words status", scheme.status);
    return html("td", { class: style, title: scheme.cause }, scheme.status);
  }
  return numberCell(scheme, column);
}

function numberCell(scheme, { key, show, best, startsGroup }) {
  const value = scheme[key];
  const all = schemes.map((each) => each[key]).filter((each) => each !== null);
  const style = classes(
    best && value !== null && show(value) === show(Math.min(...all)) && "best",
    show(value) === ABSENT && "none",
    startsGroup && "starts-group",
  );
  const range = value === null ? [] : (scheme.spread[key] ?? []).map((each) => show(each));
  const between = new Set(range).size > 1 ? [html("small", {}, range.join("–"))] : [];
  return html("td", { class: style }, show(value), ...between);
}
