// Curves in a plane, with axes and a guide line. The mouse or the arrow keys read a curve; dragging
// zooms, and a double click or Escape shows all again.

const MARGIN = { top: 14, right: 14, bottom: 44, left: 60 };
const FAR = 1e5; // pixels; a run that diverges leaves the drawing, not the range of the renderer
const SMALLEST_DRAG = 8; // pixels
const FROM_POINT = 14; // pixels between a point and its tooltip
const ARROWS = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] };

/**
 * `settings()` returns what to draw now:
 *   curves   [{ id, name, look, x, y, thin, outlier, describe(j) }]; y[j] may be null
 *   x, y     { label, log }
 *   guide    { value, label } of a horizontal line, or nothing
 * Curves that are not thin can be read: `describe` lists what is at their j-th point. An outlier
 * has no say in how high the plane is.
 */
class LineChart {
  constructor(host, title, height, settings) {
    this.settings = settings;
    this.height = height;
    this.zoom = null; // { axes, x, y }: the part that is shown, and of which plane
    this.grip = null; // where the mouse went down
    this.reading = null; // { curve, point }
    this.clip = `clip-${LineChart.made++}`;
    this.drawing = svg("svg", { class: "drawing", tabindex: 0, role: "img", "aria-label": title });
    this.tooltip = html("div", { class: "tooltip", role: "status" });
    this.showAll = html("button", { type: "button", class: "show-all" }, "show all");
    this.plot = html("div", { class: "plot" }, this.drawing, this.showAll, this.tooltip);
    host.append(this.plot);
    this.listen();
  }

  listen() {
    const on = (name, action) => this.drawing.addEventListener(name, action);
    on("pointerdown", (event) => this.take(event));
    on("pointermove", (event) => (this.grip ? this.drag(event) : this.follow(event)));
    on("pointerup", (event) => this.release(event));
    on("pointerleave", () => this.read(null));
    on("blur", () => this.read(null));
    on("dblclick", () => this.unzoom());
    on("keydown", (event) => this.press(event));
    this.showAll.addEventListener("click", () => this.unzoom());
    new ResizeObserver(() => {
      if (this.plot.clientWidth !== this.width) this.draw();
    }).observe(this.plot);
  }

  // drawing

  draw() {
    const { curves, x, y, guide } = this.settings();
    this.width = this.plot.clientWidth || 600;
    this.right = this.width - MARGIN.right;
    this.bottom = this.height - MARGIN.bottom;
    this.drawing.setAttribute("viewBox", `0 0 ${this.width} ${this.height}`);
    this.focus = svg("g", { class: "focus" });
    this.read(null);

    const drawn = curves
      .map((curve) => ({ ...curve, points: drawable(curve, x.log, y.log) }))
      .filter((curve) => curve.points.length > 0);
    this.readable = [];
    this.showAll.hidden = true;
    if (drawn.length === 0) return this.drawNothing(curves.length > 0);
    this.setScales(drawn, x, y, guide);
    for (const point of drawn.flatMap((curve) => curve.points)) {
      point.px = clamp(this.x(point.x));
      point.py = clamp(this.y(point.y));
    }
    const thin = drawn.filter((curve) => curve.thin);
    const thick = drawn.filter((curve) => !curve.thin);
    this.readable = thick
      .map((curve) => ({ ...curve, points: curve.points.filter((point) => this.shows(point)) }))
      .filter((curve) => curve.points.length > 0);
    this.drawing.replaceChildren(
      ...this.axes(x),
      svg("g", { "clip-path": `url(#${this.clip})` }, ...[...thin, ...thick].map(drawCurve)),
      ...(guide ? this.guide(guide) : []),
      this.focus,
    );
  }

  drawNothing(somethingHidden) {
    const why = somethingHidden ? "nothing here is positive" : "nothing to draw";
    const middle = { x: this.width / 2, y: this.height / 2, class: "empty" };
    this.drawing.replaceChildren(svg("text", middle, why));
  }

  /** The scales of the zoomed part, or of all curves and the guide. */
  setScales(drawn, x, y, guide) {
    this.axesNow = JSON.stringify([x, y]);
    if (this.zoom?.axes !== this.axesNow) this.zoom = null; // it was of another plane
    this.showAll.hidden = this.zoom === null;
    const horizontal = [MARGIN.left, this.right];
    const vertical = [this.bottom, MARGIN.top];
    if (this.zoom) {
      this.x = makeScale(this.zoom.x, horizontal, x.log, [0, 0]);
      this.y = makeScale(this.zoom.y, vertical, y.log, [0, 0]);
      return;
    }
    const tame = drawn.filter((curve) => !curve.outlier);
    const all = (curves, axis) => curves.flatMap(({ points }) => points.map((p) => p[axis]));
    const xs = [...all(drawn, "x"), ...(x.log ? [] : [0])];
    const ys = [...all(tame.length ? tame : drawn, "y"), ...(guide ? [guide.value] : [])];
    this.x = makeScale(xs, horizontal, x.log, [x.log ? 0.02 : 0, 0.02]);
    this.y = makeScale(ys, vertical, y.log, [0.04, 0.04]);
  }

  axes(x) {
    const { top, left } = MARGIN;
    const { right, bottom } = this;
    const vertical = this.x.ticks.flatMap((tick) => {
      const at = this.x(tick);
      const place = { x: at, y: bottom + 17, "text-anchor": "middle" };
      const line = svg("line", { class: "tick", x1: at, x2: at, y1: top, y2: bottom });
      return [line, svg("text", place, this.x.label(tick))];
    });
    const horizontal = this.y.ticks.flatMap((tick) => {
      const at = this.y(tick);
      const place = { x: left - 8, y: at + 4, "text-anchor": "end" };
      const line = svg("line", { class: "tick", x1: left, x2: right, y1: at, y2: at });
      return [line, svg("text", place, this.y.label(tick))];
    });
    const below = { class: "x-label", x: (left + right) / 2, y: this.height - 6 };
    const area = { x: left, y: top, width: right - left, height: bottom - top };
    return [
      ...vertical,
      ...horizontal,
      svg("path", { class: "frame", d: `M${left} ${top}V${bottom}H${right}` }),
      svg("text", below, x.label + (x.log ? ", logarithmic" : "")),
      svg("clipPath", { id: this.clip }, svg("rect", area)),
    ];
  }

  guide({ value, label }) {
    const at = this.y(value);
    if (!(MARGIN.top <= at && at <= this.bottom)) return [];
    return [
      svg("line", { class: "guide", x1: MARGIN.left, x2: this.right, y1: at, y2: at }),
      svg("text", { class: "guide-label", x: this.right - 4, y: at - 6 }, label),
    ];
  }

  shows({ px, py }) {
    const { left, top } = MARGIN;
    return left - 1 <= px && px <= this.right + 1 && top - 1 <= py && py <= this.bottom + 1;
  }

  // zooming, with a mouse: a finger on glass scrolls the page

  take(event) {
    if (event.pointerType !== "mouse" || event.button !== 0) return;
    this.grip = this.where(event);
    this.drawing.setPointerCapture(event.pointerId);
  }

  drag(event) {
    const [[x0, y0], [x1, y1]] = [this.grip, this.where(event)];
    const size = { width: Math.abs(x1 - x0), height: Math.abs(y1 - y0) };
    this.read(null);
    this.focus.append(svg("rect", { x: Math.min(x0, x1), y: Math.min(y0, y1), ...size }));
  }

  release(event) {
    if (!this.grip) return;
    const [[x0, y0], [x1, y1]] = [this.grip, this.where(event)];
    this.grip = null;
    this.read(null);
    if (Math.min(Math.abs(x1 - x0), Math.abs(y1 - y0)) < SMALLEST_DRAG) return;
    const part = { x: [x0, x1].map(this.x.invert), y: [y0, y1].map(this.y.invert) };
    this.zoom = { axes: this.axesNow, ...part };
    this.draw();
  }

  unzoom() {
    this.zoom = null;
    this.draw();
  }

  // reading

  /** Where the mouse is in the drawing. */
  where(event) {
    const box = this.drawing.getBoundingClientRect();
    const shrunk = this.width / box.width;
    return [(event.clientX - box.left) * shrunk, (event.clientY - box.top) * shrunk];
  }

  /** Read the point that is nearest to the mouse. */
  follow(event) {
    const [mx, my] = this.where(event);
    const near = this.readable.map((curve) => {
      const distance = ({ px, py }) => Math.hypot(px - mx, py - my);
      const point = smallest(curve.points, distance);
      return { curve, point, distance: distance(point) };
    });
    this.read(near.length ? smallest(near, (each) => each.distance) : null);
  }

  /** Left and right along a curve, up and down to the next one. */
  press(event) {
    const step = ARROWS[event.key];
    if (event.key === "Escape") this.unzoom();
    if (!step || this.readable.length === 0) return;
    event.preventDefault();
    const [curves, reading] = [this.readable, this.reading];
    if (!reading) return this.read({ curve: curves[0], point: curves[0].points[0] });
    const { points } = reading.curve;
    const c = curves.indexOf(reading.curve) + step[0];
    const j = points.indexOf(reading.point) + step[1];
    const curve = curves[(c + curves.length) % curves.length];
    const beside = ({ px }) => Math.abs(px - reading.point.px);
    const along = points[Math.min(Math.max(j, 0), points.length - 1)];
    this.read({ curve, point: curve === reading.curve ? along : smallest(curve.points, beside) });
  }

  /** Show what is at a point; null: nothing. */
  read(reading) {
    this.reading = reading;
    this.tooltip.hidden = reading === null;
    this.focus.replaceChildren();
    if (reading === null) return;
    const { curve, point } = reading;
    this.focus.style.color = curve.look.colour;
    this.focus.append(
      svg("line", { x1: point.px, x2: point.px, y1: MARGIN.top, y2: this.bottom }),
      svg("circle", { cx: point.px, cy: point.py, r: 5 }),
    );
    const row = ([name, text]) => [html("dt", {}, name), html("dd", {}, text)];
    this.tooltip.replaceChildren(
      html("strong", {}, swatch(curve.look), curve.name),
      html("dl", {}, ...curve.describe(point.j).flatMap(row)),
    );
    this.placeTooltip(point);
  }

  /** Beside the point, on its left where there is no room on its right. */
  placeTooltip({ px, py }) {
    const grown = this.plot.clientWidth / this.width;
    const { offsetWidth: width, offsetHeight: height } = this.tooltip;
    const room = px * grown + FROM_POINT + width <= this.plot.clientWidth;
    const x = px * grown + (room ? FROM_POINT : -FROM_POINT - width);
    const y = Math.max(0, Math.min(py * grown - height / 2, this.height * grown - height));
    this.tooltip.style.transform = `translate(${Math.max(0, x)}px, ${y}px)`;
  }
}

LineChart.made = 0;

function clamp(pixel) {
  return Math.min(Math.max(pixel, -FAR), FAR);
}

function smallest(items, size) {
  return items.reduce((best, item) => (size(item) < size(best) ? item : best));
}

/** The points of a curve that exist and that the scales can show. */
function drawable({ x, y }, xLog, yLog) {
  return x
    .map((value, j) => ({ x: value, y: y[j], j }))
    .filter((p) => p.x !== null && p.y !== null && !(xLog && p.x <= 0) && !(yLog && p.y <= 0));
}
