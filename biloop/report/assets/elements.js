// Elements and numbers: how anything is put on the page. Text from the payload becomes text nodes
// and attribute values, never markup.

const SVG = "http://www.w3.org/2000/svg";

function fill(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === false || value === null || value === undefined) continue;
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else node.setAttribute(name, value === true ? "" : value);
  }
  node.append(...children);
  return node;
}

/** An HTML element; an attribute "onclick" is a function. */
function html(tag, attributes = {}, ...children) {
  return fill(document.createElement(tag), attributes, children);
}

function svg(tag, attributes = {}, ...children) {
  return fill(document.createElementNS(SVG, tag), attributes, children);
}

function byId(id) {
  return document.getElementById(id);
}

function classes(...names) {
  return names.filter(Boolean).join(" ") || null;
}

// numbers

const ABSENT = "–";

/** Few significant digits, as in the terminal: 0.05, 2.5, 1.84e-4, 2.13e8. */
function short(value, digits = 3) {
  if (value === null || value === undefined) return ABSENT;
  if (typeof value === "string") return value;
  const [mantissa, exponent] = value.toExponential(digits - 1).split("e").map(Number);
  if ((-3 <= exponent && exponent < digits) || mantissa === 0) {
    return String(Number(value.toPrecision(digits)));
  }
  return `${mantissa}e${exponent}`;
}

/** A number of things: in full while that is short, digits in groups of three. */
function count(value) {
  if (typeof value !== "number" || value >= 1e6) return short(value);
  if (value < 10 && !Number.isInteger(value)) return short(value, 2); // passes over samples
  return String(Math.round(value)).replace(/\B(?=(\d{3})+$)/g, "\u202f");
}

const DIGITS = "⁰¹²³⁴⁵⁶⁷⁸⁹";

function ratio(a, b) {
  return `${a < 10 * b ? short(a / b, 2) : count(a / b)} times`;
}

/** 1, 10, and other powers of ten as powers. */
function power(value) {
  const exponent = Math.round(Math.log10(value));
  if (exponent === 0 || exponent === 1) return String(value);
  return "10" + String(exponent).replace("-", "⁻").replace(/\d/g, (digit) => DIGITS[digit]);
}

/** The smallest and the largest; any number of values. */
function extremes(values) {
  return values.reduce(([a, b], v) => [Math.min(a, v), Math.max(b, v)], [Infinity, -Infinity]);
}

// blocks

/** A line or a block of code with a button that copies it. */
function codeBlock(code, name) {
  const button = html("button", { type: "button", "aria-label": `copy ${name}` }, "copy");
  button.addEventListener("click", () => copy(code, button));
  return html("div", { class: "code" }, html("pre", {}, html("code", {}, code)), button);
}

async function copy(text, button) {
  let copied = true;
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    copied = copyBySelection(text); // a browser that keeps the clipboard from files on disk
  }
  const before = button.textContent;
  if (before !== "copy") return; // the last answer still stands
  button.textContent = copied ? "copied" : "not allowed";
  setTimeout(() => (button.textContent = before), 1500);
}

function copyBySelection(text) {
  const area = html("textarea", { readonly: true });
  area.value = text;
  document.body.append(area);
  area.select();
  const copied = document.execCommand("copy");
  area.remove();
  return copied;
}

/** A table that scrolls within the page, by keys too, where it is wider. */
function scrollingTable(label, head, body) {
  const attributes = { class: "scroll", tabindex: 0, role: "region", "aria-label": label };
  return html("div", attributes, html("table", {}, head, body));
}

// controls

/** One of several: radio buttons, so that arrow keys work. */
function choice(label, group, options, current, change) {
  const labels = Object.entries(options).map(([value, text]) => {
    const attributes = { type: "radio", name: group, value, checked: value === current };
    const input = html("input", { ...attributes, onchange: () => change(value) });
    return html("label", {}, input, html("span", {}, text));
  });
  return html("fieldset", { class: "choice" }, html("legend", {}, label), ...labels);
}

function onOff(label, current, change) {
  const input = html("input", { type: "checkbox", role: "switch", checked: current });
  input.addEventListener("change", () => change(input.checked));
  return html("label", { class: "switch" }, input, html("i", {}), label);
}
