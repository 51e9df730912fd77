/* Charts of a few hundred to a few thousand points, as SVG: one path for each line or category. */
const MARGIN = { top: 22, right: 10, bottom: 30, left: 56 };

/** Scales, grid and axes with their names; `draw` gets them and puts marks in. `tell(i)` is what the pointer is told, `go(i)` where a click leads. */
function plot({ height = 190, xs, low, high, log = false, unit, share = false, yText, yName, xName, xText = (x) => String(x), bars = false, label, draw, tell, go }) {
  const box = h("div", { class: "plot" });
  const first = xs[0], last = xs[xs.length - 1];
  const span = last - first || 1;
  const entire = xs.every((value) => Number.isInteger(value));
  const levels = log ? logTicks(low, high) : (unit === "s" ? timeTicks : ticks)(low, high, (height - 38) / 36);
  // The topmost line of the grid is not below what is drawn.
  if (!log && !(share && high === 1) && levels.length > 1 && levels[levels.length - 1] < high * 0.999) {
    levels.push(2 * levels[levels.length - 1] - levels[levels.length - 2]);
    high = levels[levels.length - 1];
  }
  fitted(box, (width) => {
    const inner = width - MARGIN.left - MARGIN.right, tall = height - MARGIN.top - MARGIN.bottom;
    const slot = inner / xs.length;
    const x = bars ? (_, at) => MARGIN.left + slot * (at + 0.5) : (value) => MARGIN.left + ((value - first) / span) * inner;
    const part = log ? (value) => Math.log(Math.max(value, low) / low) / Math.log(high / low) : (value) => (value - low) / (high - low || 1);
    const y = (value) => MARGIN.top + tall * (1 - Math.max(0, Math.min(1, part(value))));
    const root = s("svg", { width, height, viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": label, tabindex: "0" });
    for (const value of levels) {
      root.append(s("line", { class: "grid-line", x1: MARGIN.left, x2: width - MARGIN.right, y1: y(value), y2: y(value) }),
        s("text", { x: MARGIN.left - 7, y: y(value) + 4, "text-anchor": "end" }, yText(value)));
    }
    root.append(s("line", { class: "axis", x1: MARGIN.left, x2: width - MARGIN.right, y1: MARGIN.top + tall, y2: MARGIN.top + tall }));
    const every = bars ? Math.max(1, Math.ceil(xs.length / (inner / 48))) : 0;
    const marks = bars ? xs.map((_, at) => at).filter((at) => at % every === 0) : ticks(first, last, inner / 80).filter((place) => place >= first && place <= last && (!entire || Number.isInteger(place)));
    for (const mark of marks) {
      const at = bars ? x(null, mark) : x(mark);
      root.append(s("text", { x: at, y: height - MARGIN.bottom + 15, "text-anchor": "middle" }, xText(bars ? xs[mark] : mark)));
    }
    root.append(s("text", { class: "axis-name", x: MARGIN.left + inner / 2, y: height - 1, "text-anchor": "middle" }, xName), s("text", { class: "axis-name", x: 0, y: 10 }, yName));
    draw(root, { x, y, inner, tall, slot, width, height, base: MARGIN.top + tall });
    if (tell) pointed(root, xs, x, tell, height, go);
    box.replaceChildren(root);
  });
  return box;
}

function logTicks(low, high) {
  const found = [];
  for (let power = Math.floor(Math.log10(low)); power <= Math.ceil(Math.log10(high)); power += 1)
    for (const digit of high / low > 3000 ? [1] : high / low > 60 ? [1, 3] : [1, 2, 5]) found.push(digit * 10 ** power);
  return found.filter((tick) => tick >= low * 0.999 && tick <= high * 1.001);
}

/** A line under the pointer, or under the arrow keys, and what there is at it. */
function pointed(root, xs, x, tell, height, go) {
  const cursor = s("line", { class: "cursor", y1: MARGIN.top, y2: height - MARGIN.bottom, visibility: "hidden" });
  root.append(cursor);
  let now = -1;
  const show = (at, clientX, clientY) => {
    now = at;
    const place = x(xs[at], at);
    cursor.setAttribute("x1", place);
    cursor.setAttribute("x2", place);
    cursor.setAttribute("visibility", "visible");
    const tip = tell(at);
    showTip(clientX, clientY, tip.title, tip.rows, tip.quiet);
  };
  const hide = () => { cursor.setAttribute("visibility", "hidden"); hideTip(); now = -1; };
  const nearest = (event) => {
    const place = event.clientX - root.getBoundingClientRect().left;
    let best = 0, least = Infinity;
    xs.forEach((value, at) => {
      const far = Math.abs(x(value, at) - place);
      if (far < least) { least = far; best = at; }
    });
    return best;
  };
  root.addEventListener("pointermove", (event) => show(nearest(event), event.clientX, event.clientY));
  if (go) {
    root.classList.add("leads");
    root.addEventListener("click", (event) => go(nearest(event)));
  }
  root.addEventListener("pointerleave", hide);
  root.addEventListener("blur", hide);
  root.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && go && now >= 0) { go(now); return; }
    const move = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (!move) return;
    event.preventDefault();
    const at = Math.max(0, Math.min(xs.length - 1, now < 0 ? 0 : now + move));
    const frame = root.getBoundingClientRect();
    show(at, frame.left + x(xs[at], at), frame.top + MARGIN.top);
  });
}

/** Columns of parts on top of one another, with hardly a gap. */
function stackedColumns({ labels, parts, share, xName, yName, yText, label, tell, go, height }) {
  const tops = labels.map((_, at) => parts.reduce((sum, part) => sum + part.values[at], 0));
  const high = share ? 1 : Math.max(...tops, 1e-9);
  return plot({
    height, xs: labels, low: 0, high, share, bars: true, xName, yName, yText, label, tell, go,
    draw: (root, { x, y, slot }) => {
      const half = Math.max(0.5, slot / 2 - (slot > 9 ? 0.75 : 0));
      const floor = labels.map(() => 0);
      for (const part of parts) {
        let path = "";
        part.values.forEach((value, at) => {
          const size = share ? (tops[at] ? value / tops[at] : 0) : value;
          if (!size) return;
          const middle = x(null, at), from = y(floor[at]), to = y(floor[at] += size);
          path += `M${(middle - half).toFixed(2)} ${from.toFixed(2)}V${to.toFixed(2)}H${(middle + half).toFixed(2)}V${from.toFixed(2)}Z`;
        });
        if (path) root.append(s("path", { d: path, style: { fill: part.fill } }));
      }
    },
  });
}

/** Lines, bands between two of them, and dots, over the same xs. Unknown is a gap. */
function lines({ xs, bands = [], curves = [], dots = [], unit, xName, yName, xText, label, height, floor = 0, title, keys = [], go }) {
  const every = [...bands.flatMap((band) => [...band.low, ...band.high]), ...curves.flatMap((curve) => curve.ys), ...dots.flatMap((curve) => curve.ys)]
    .filter((value) => value !== null && Number.isFinite(value));
  if (!every.length) return h("p", { class: "quiet small" }, "Nothing to draw.");
  let high = every.reduce((a, b) => Math.max(a, b), -Infinity), low = every.reduce((a, b) => Math.min(a, b), Infinity);
  const least = low;
  low = Math.min(low, floor);
  const share = unit === "share";
  const middle = [...every].sort((a, b) => a - b)[every.length >> 1];
  const log = unit !== "1" && !share && least > 0 && high / middle > 12;
  if (log) low = least; else high = share && high > 0.6 ? 1 : high || 1;
  const path = (ys, scale) => {
    let text = "", pen = false;
    ys.forEach((value, at) => {
      if (value === null || !Number.isFinite(value)) { pen = false; return; }
      text += `${pen ? "L" : "M"}${scale.x(xs[at], at).toFixed(1)} ${scale.y(value).toFixed(1)}`;
      pen = true;
    });
    return text;
  };
  const box = plot({
    height, xs, low, high, log, unit, share, xName, yName, xText, label, go,
    yText: (value) => (share ? percent(value) : isGpuTime(unit) ? short(value / gpuUnit()[0]) : said(value, unit)),
    draw: (root, scale) => {
      for (const band of bands) {
        let text = "", back = "";
        xs.forEach((value, at) => {
          if (band.low[at] === null || band.high[at] === null) return;
          text += `${text ? "L" : "M"}${scale.x(value, at).toFixed(1)} ${scale.y(band.high[at]).toFixed(1)}`;
          back = `L${scale.x(value, at).toFixed(1)} ${scale.y(band.low[at]).toFixed(1)}${back}`;
        });
        if (text) root.append(s("path", { d: `${text}${back}Z`, style: { fill: band.fill, opacity: band.opacity } }));
      }
      for (const cloud of dots) {
        let text = "";
        cloud.ys.forEach((value, at) => {
          if (value !== null) text += `M${scale.x(xs[at], at).toFixed(1)} ${scale.y(value).toFixed(1)}h0`;
        });
        root.append(s("path", { d: text, style: { stroke: cloud.fill, "stroke-width": "4px", "stroke-linecap": "round", fill: "none", opacity: cloud.opacity || 0.55 } }));
      }
      for (const curve of curves) root.append(s("path", { d: path(curve.ys, scale), style: { stroke: curve.fill, "stroke-width": curve.width || "1.6px", "stroke-dasharray": curve.dash || "none", fill: "none", "stroke-linejoin": "round", "stroke-linecap": "round" } }));
    },
    tell: (at) => ({
      title: title(at),
      rows: [...keys.map((key) => [null, key.name, key.said(at)]), ...[...curves, ...dots].filter((line) => line.ys[at] !== null && line.ys[at] !== undefined)
        .map((line) => [line.fill, line.name, said(line.ys[at], unit)])],
    }),
  });
  const shown = curves.length + dots.length > 1 || bands.length > 0;
  return h("div", {}, box, shown && h("div", { class: "legend" },
    bands.map((band) => h("span", {}, h("span", { class: "chip", style: { background: band.fill, opacity: Math.min(1, band.opacity * 1.6) } }), band.name)),
    curves.map((curve) => h("span", {}, h("span", { class: "dash", style: { "border-color": curve.fill, "border-top-style": curve.dash ? "dashed" : "solid" } }), curve.name)),
    dots.map((curve) => h("span", {}, chip(curve.fill), curve.name)),
    log && h("span", {}, "logarithmic scale")));
}
