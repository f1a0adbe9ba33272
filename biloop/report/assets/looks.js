// The looks of a scheme, the same in every chart, legend and table.

const COLOURS = 8; // --curve-0 to --curve-7 of the style sheet
const DASHES = ["", "7 4", "2 3"]; // for more schemes than colours
const MARKERS = [
  "M-4-4H4V4H-4Z", // square
  "M0-5L5 4H-5Z", // triangle
  "M0 5L5-4H-5Z", // triangle, down
  "M-4.5 0A4.5 4.5 0 1 1 4.5 0A4.5 4.5 0 1 1-4.5 0Z", // circle
  "M-4.5-4.5L4.5 4.5M-4.5 4.5L4.5-4.5", // saltire
  "M0-5.5L5.5 0L0 5.5L-5.5 0Z", // diamond
  "M-5 0H5M0-5V5", // cross
  "M0-6L1.5-1.9L5.7-1.9L2.4.8L3.5 4.9L0 2.5L-3.5 4.9L-2.4.8L-5.7-1.9L-1.5-1.9Z", // star
];

/** How the i-th scheme looks: a colour, and a marker for readers who cannot see it. */
function look(i) {
  return {
    colour: `var(--curve-${i % COLOURS})`,
    marker: MARKERS[i % MARKERS.length],
    dash: DASHES[Math.floor(i / COLOURS) % DASHES.length],
  };
}

function swatch({ colour, marker, dash }) {
  const drawing = svg("svg", { class: "swatch", viewBox: "-13 -6 26 12", "aria-hidden": "true" });
  drawing.style.color = colour;
  drawing.append(
    svg("path", { class: "line", d: "M-13 0H13", "stroke-dasharray": dash }),
    svg("path", { class: "marker", d: marker }),
  );
  return drawing;
}

function drawCurve({ id, look, points, thin }) {
  const place = ({ px, py }, j) => `${j ? "L" : "M"}${px.toFixed(1)} ${py.toFixed(1)}`;
  const group = svg("g", { class: thin ? "curve thin" : "curve", "data-id": id });
  group.style.color = look.colour;
  const line = { class: "line", d: points.map(place).join(""), "stroke-dasharray": look.dash };
  group.append(svg("path", line), ...(thin ? [] : markers(id, points, look.marker)));
  return group;
}

const BETWEEN_MARKERS = 110; // pixels

/** Markers at least so far apart, the first at another place on each curve; at least one. */
function markers(id, points, marker) {
  const at = [];
  let before = points[0];
  let wait = BETWEEN_MARKERS * (0.2 + 0.13 * (id % 7));
  for (const point of points) {
    if (Math.hypot(point.px - before.px, point.py - before.py) < wait) continue;
    at.push(point);
    before = point;
    wait = BETWEEN_MARKERS;
  }
  if (at.length === 0) at.push(points.at(-1));
  return at.map(({ px, py }) =>
    svg("path", { class: "marker", d: marker, transform: `translate(${px} ${py})` }),
  );
}
