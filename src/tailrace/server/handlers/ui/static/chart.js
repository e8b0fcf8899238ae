// A line chart over time, in SVG and without a library.

import { el, replace, svg } from "./dom.js";

const WIDTH = 600;
const HEIGHT = 140;
const POINTS_MIN = 20;

// The upper end of the axis: 1, 2 or 5 times a power of ten; for bytes a power of two.
function ceiling(value, binary) {
  if (!(value > 0)) return 1;
  if (binary) return 2 ** Math.ceil(Math.log2(value));
  const power = 10 ** Math.floor(Math.log10(value));
  return [1, 2, 5, 10].map((step) => step * power).find((bound) => bound >= value);
}

export class Chart {
  // `lines`: the names of the lines; `format`: formats a value; `points`: how many are kept.
  constructor(title, lines, format, { points, binary = false }) {
    Object.assign(this, { lines, format, points, binary });
    this.values = lines.map(() => []);
    this.now = el("span", { class: "now" }, "–");
    this.plot = svg("svg", {
      viewBox: `0 0 ${WIDTH} ${HEIGHT}`,
      preserveAspectRatio: "none",
      "aria-hidden": "true",
    });
    this.top = el("span", { class: "top" });
    const legend =
      lines.length > 1 &&
      el(
        "ul",
        { class: "legend" },
        lines.map((line, at) => el("li", { class: `line-${at}` }, line)),
      );
    this.element = el(
      "figure",
      { class: "card chart", role: "img", "aria-label": title },
      el("figcaption", null, el("span", null, title), this.now),
      el("div", { class: "plot" }, this.top, this.plot),
      legend,
    );
    this.title = title;
    this.draw();
  }

  // Adds a value to each line; null leaves a gap.
  add(...values) {
    this.values.forEach((line, at) => {
      line.push(values[at] ?? null);
      if (line.length > this.points) line.shift();
    });
    this.draw();
  }

  draw() {
    const most = ceiling(
      Math.max(0, ...this.values.flat().filter((value) => value !== null)),
      this.binary,
    );
    // A few points are spread over the width, so that a new chart does not look empty.
    const across = Math.max(POINTS_MIN, this.values[0].length) - 1;
    const x = (at, length) => WIDTH - ((length - 1 - at) * WIDTH) / across;
    const y = (value) => HEIGHT - (value / most) * (HEIGHT - 4) - 1;
    const shapes = [0.25, 0.5, 0.75].map((share) =>
      svg("line", { class: "grid", x1: 0, x2: WIDTH, y1: HEIGHT * share, y2: HEIGHT * share }),
    );
    this.values.forEach((line, index) => {
      const dots = line
        .map((value, at) => [x(at, line.length), value])
        .filter(([, value]) => value !== null)
        .map(([left, value]) => `${left.toFixed(1)},${y(value).toFixed(1)}`);
      if (dots.length < 2) return;
      const [start, end] = [dots[0].split(",")[0], dots.at(-1).split(",")[0]];
      if (index === 0)
        shapes.push(
          svg("path", {
            class: "area",
            d: `M${start},${HEIGHT}L${dots.join("L")}L${end},${HEIGHT}Z`,
          }),
        );
      shapes.push(
        svg("path", {
          class: `line line-${index}`,
          d: `M${dots.join("L")}`,
          "vector-effect": "non-scaling-stroke",
        }),
      );
    });
    replace(this.plot, shapes);
    this.top.textContent = this.format(most);
    const latest = this.values[0].at(-1);
    this.now.textContent = latest === undefined || latest === null ? "–" : this.format(latest);
    this.element.setAttribute("aria-label", `${this.title}: ${this.now.textContent}`);
  }
}
