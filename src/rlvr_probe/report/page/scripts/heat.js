/* Maps: rows and columns of small numbers, as a picture of one pixel each that is drawn larger. */
function blend(from, to, share) {
  const parts = (hex) => [1, 3, 5].map((at) => parseInt(hex.slice(at, at + 2), 16));
  const [a, b] = [parts(from), parts(to)];
  return a.map((value, at) => Math.round(value + (b[at] - value) * share));
}

/** `value(row, column)` is 0..1, or null for nothing there; `tell` is what the pointer is told, `go` where a click leads. */
function heatMap({ rows, columns, value, tell, go, label, tall, left, bottom, leftName }) {
  const canvas = h("canvas", { class: "heat", width: columns, height: rows, role: "img", "aria-label": label, style: { height: `${tall}px` } });
  const paint = () => {
    const [from, to, none] = palette(["--heat-0", "--heat-1", "--surface"]);
    const shades = Array.from({ length: 101 }, (_, at) => blend(from, to, at / 100));
    const empty = blend(none, none, 0);
    const context = canvas.getContext("2d");
    const image = context.createImageData(columns, rows);
    for (let row = 0; row < rows; row += 1) for (let column = 0; column < columns; column += 1) {
      const here = value(row, column);
      const shade = here === null ? empty : shades[Math.round(100 * Math.max(0, Math.min(1, here)))];
      image.data.set([...shade, 255], 4 * (row * columns + column));
    }
    context.putImageData(image, 0, 0);
  };
  paint();
  redraws.push(paint);
  const cell = (event) => {
    const frame = canvas.getBoundingClientRect();
    return [Math.max(0, Math.min(rows - 1, Math.floor((event.clientY - frame.top) / frame.height * rows))),
      Math.max(0, Math.min(columns - 1, Math.floor((event.clientX - frame.left) / frame.width * columns)))];
  };
  if (go) {
    canvas.classList.add("leads");
    canvas.addEventListener("click", (event) => go(...cell(event)));
  }
  canvas.addEventListener("pointermove", (event) => {
    const tip = tell(...cell(event));
    if (tip) showTip(event.clientX, event.clientY, tip.title, tip.rows, tip.quiet); else hideTip();
  });
  canvas.addEventListener("pointerleave", hideTip);
  const axis = (names, across) => h("div", { class: "quiet small", style: across
    ? { display: "flex", "justify-content": "space-between" }
    : { display: "flex", "flex-direction": "column", "justify-content": names.length === rows ? "space-around" : "space-between", "text-align": "right", height: `${tall}px` } },
    names.map((name) => h("span", {}, name)));
  return h("div", { style: { display: "grid", "grid-template-columns": "max-content minmax(0, 1fr)", gap: "3px 8px" } },
    axis(left, false), canvas, h("span", { class: "quiet small" }, leftName || ""), axis(bottom, true));
}
