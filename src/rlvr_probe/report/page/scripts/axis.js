/* The window of time that the timeline shows, and what moves it. Times are µs from the first step. */
class View {
  constructor(end) { this.end = end; this.from = 0; this.to = end; this.listeners = []; }
  get span() { return this.to - this.from; }
  set(from, to) {
    const span = Math.max(50, Math.min(this.end, to - from));
    this.from = Math.max(0, Math.min(this.end - span, from));
    this.to = this.from + span;
    this.listeners.forEach((act) => act());
  }
  zoom(by, at = (this.from + this.to) / 2) {
    const span = this.span * by;
    const share = (at - this.from) / this.span;
    this.set(at - span * share, at + span * (1 - share));
  }
  pan(share) { this.set(this.from + this.span * share, this.to + this.span * share); }
}

/** Wheel, drag and a click on a canvas whose tracks start at `gutter`. */
function steer(node, view, gutter, point, click) {
  const at = (event) => {
    const frame = node.getBoundingClientRect();
    return view.from + ((event.clientX - frame.left - gutter) / (frame.width - gutter)) * view.span;
  };
  node.addEventListener("wheel", (event) => {
    const across = Math.abs(event.deltaX) > Math.abs(event.deltaY) || event.shiftKey;
    if (event.ctrlKey || event.metaKey) { event.preventDefault(); view.zoom(Math.exp(Math.max(-60, Math.min(60, event.deltaY)) / 120), at(event)); }
    else if (across) { event.preventDefault(); view.pan((event.deltaX || event.deltaY) / (node.clientWidth - gutter)); }
  }, { passive: false });
  let held = null;
  node.addEventListener("pointerdown", (event) => { held = { x: event.clientX, from: view.from, to: view.to }; node.setPointerCapture(event.pointerId); });
  node.addEventListener("pointermove", (event) => {
    if (!held) { point(event, at(event)); return; }
    const moved = ((event.clientX - held.x) / (node.clientWidth - gutter)) * (held.to - held.from);
    hideTip();
    view.set(held.from - moved, held.to - moved);
  });
  node.addEventListener("pointerup", (event) => {
    if (click && held && Math.abs(event.clientX - held.x) < 4) click(at(event));
    held = null;
  });
  node.addEventListener("pointercancel", () => { held = null; });
  node.addEventListener("pointerleave", hideTip);
  node.addEventListener("dblclick", (event) => view.zoom(0.4, at(event)));
}

/** Arrows move, + and - zoom, as do W A S D. */
function keyed(node, view) {
  const acts = {
    ArrowLeft: () => view.pan(-0.2), a: () => view.pan(-0.2), ArrowRight: () => view.pan(0.2), d: () => view.pan(0.2),
    "+": () => view.zoom(0.5), "=": () => view.zoom(0.5), w: () => view.zoom(0.5), "-": () => view.zoom(2), s: () => view.zoom(2), Home: () => view.set(0, view.end), "0": () => view.set(0, view.end),
  };
  node.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || !acts[event.key]) return;
    event.preventDefault();
    acts[event.key]();
  });
}

/** A canvas as sharp as the screen. */
function sharp(canvas, width, height) {
  const ratio = Math.min(2, devicePixelRatio || 1);
  canvas.width = Math.round(width * ratio);
  canvas.height = Math.round(height * ratio);
  canvas.style.width = `${width}px`;
  canvas.style.height = `${height}px`;
  const context = canvas.getContext("2d");
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  context.clearRect(0, 0, width, height);
  return context;
}
