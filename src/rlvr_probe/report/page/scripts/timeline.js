/* The timeline: steps, sequences in flight, and a track for each GPU, with what its device read. */
const MINI = 26, RULER = 18, STEPS = 16, FLIGHT = 44, READING = 22, GAP = 5;
const COUNTER_NAMES = { sm_active: "SM active", tensor_active: "tensor active", utilization: "any kernel active", power_w: "power", memory_b: "memory", temperature_c: "temperature", sm_clock_hz: "SM clock" };

class Timeline {
  constructor(timeline, ledger) {
    this.drawn = timeline;
    this.names = ledger.categories.map(([name]) => name);
    this.tracks = new Tracks(timeline, this.names);
    this.view = new View(timeline.end_us);
    this.reading = timeline.readings[0] || null;
    this.mini = h("canvas", { "aria-hidden": "true" });
    this.top = h("canvas", { "aria-hidden": "true" });
    this.body = h("canvas", { role: "img", "aria-label": about("What each GPU did over time. The ledger has the same as a table.") });
    this.box = h("div", { class: "body" }, this.body);
    this.node = h("div", { class: "lanes", tabindex: "0", role: "group", "aria-label": "timeline; arrows move, plus and minus zoom, Home shows all" },
      h("div", { class: "mini" }, this.mini), this.top, this.box);
    this.view.listeners.push(() => this.schedule());
    steer(this.body, this.view, this.gutter, (event, time) => this.point(event, time));
    steer(this.top, this.view, this.gutter, (event, time) => this.pointTop(event, time), (time) => {
      const step = this.stepAt(time);
      if (step) navigate(toStep(stepName(step[0], step[1])));
    });
    keyed(this.node, this.view);
    this.box.addEventListener("scroll", () => this.schedule(), { passive: true });
    this.brush();
    fitted(this.node, (width) => { this.width = width; this.theme(); this.draw(); });
  }

  get gutter() { return innerWidth < 700 ? 64 : 108; }
  get track() { return this.drawn.gpus.length > 8 ? 16 : 26; }
  get lane() { return this.track + GAP + (this.reading ? READING : 0); }
  get topTall() { return RULER + STEPS + (this.drawn.flight ? FLIGHT : 0); }
  x(time) { return this.gutter + ((time - this.view.from) / this.view.span) * (this.width - this.gutter); }

  theme() {
    this.fills = palette(this.names.map(variable));
    [this.ink, this.ink2, this.line, this.accent, this.sunk, this.surface] = palette(["--ink", "--ink-2", "--line", "--accent", "--sunk", "--surface"]);
  }

  schedule() {
    if (this.asked) return;
    this.asked = true;
    requestAnimationFrame(() => { this.asked = false; this.draw(); });
  }

  draw() {
    if (!this.width) return;
    this.dense = this.tracks.dense(this.view.from, this.view.to, this.drawn.gpus.length, this.width - this.gutter);
    this.drawMini();
    this.drawTop();
    this.drawBody();
    if (this.moved) this.moved();
  }

  drawMini() {
    const context = sharp(this.mini, this.width, MINI), inner = this.width - this.gutter;
    const pieces = this.means || (this.means = this.tracks.mean());
    const wide = inner / pieces.length;
    pieces.forEach((parts, at) => {
      let floor = MINI - 3;
      for (const [name, share] of parts) {
        const size = (MINI - 6) * share / 100;
        context.fillStyle = this.fills[name];
        const left = Math.round(this.gutter + at * wide);
        context.fillRect(left, floor - size, Math.round(this.gutter + (at + 1) * wide) - left || 1, size);
        floor -= size;
      }
    });
    const left = this.gutter + (this.view.from / this.view.end) * inner, right = this.gutter + (this.view.to / this.view.end) * inner;
    context.fillStyle = this.surface;
    context.globalAlpha = 0.62;
    context.fillRect(this.gutter, 0, left - this.gutter, MINI);
    context.fillRect(right, 0, this.width - right, MINI);
    context.globalAlpha = 1;
    context.strokeStyle = this.ink;
    context.lineWidth = 1.5;
    context.strokeRect(Math.min(left, this.width - 4) + 0.75, 0.75, Math.max(3, right - left - 1.5), MINI - 1.5);
    this.label(context, "whole run", MINI / 2 + 4);
  }

  label(context, text, y, quiet = true) {
    context.fillStyle = quiet ? this.ink2 : this.ink;
    context.font = "11px system-ui, sans-serif";
    context.textAlign = "right";
    context.fillText(text, this.gutter - 8, y, this.gutter - 12);
  }

  drawTop() {
    const context = sharp(this.top, this.width, this.topTall);
    context.font = "11px system-ui, sans-serif";
    const step = this.view.span / 1e6 / Math.max(2, (this.width - this.gutter) / 90);
    context.textAlign = "center";
    for (const tick of timeTicks(this.view.from / 1e6, this.view.to / 1e6, Math.max(2, (this.width - this.gutter) / 90))) {
      const x = this.x(tick * 1e6);
      context.fillStyle = this.ink2;
      context.fillText(moment(tick, step), Math.max(this.gutter + 14, Math.min(this.width - 18, x)), RULER - 6);
      context.fillStyle = this.line;
      context.fillRect(x, RULER - 3, 1, 3);
    }
    this.label(context, "time, min:s", RULER - 6);
    this.label(context, "step", RULER + 11);
    const numbers = [];
    this.drawn.steps.forEach(([, number, from, to], at) => {
      if (to < this.view.from || from > this.view.to) return;
      const left = Math.max(this.gutter, this.x(from)), right = Math.min(this.width, this.x(to));
      if (right - left < 0.4) return;
      context.fillStyle = at % 2 ? this.sunk : this.line;
      context.fillRect(left, RULER, Math.max(0.6, right - left - 0.6), STEPS - 3);
      if (right - left > 10 + 6 * String(number).length) numbers.push([number, (left + right) / 2]);
    });
    context.fillStyle = this.ink;
    context.textAlign = "center";
    for (const [number, x] of numbers) context.fillText(String(number), x, RULER + 10);
    if (this.drawn.flight) this.drawFlight(context);
  }

  drawFlight(context) {
    const { flight } = this.drawn, top = RULER + STEPS, tall = FLIGHT - 6;
    const most = flight.reduce((a, b) => Math.max(a, b), 1e-9), width = this.drawn.end_us / flight.length;
    this.label(context, "in flight", top + 14);
    this.label(context, `max ${short(Math.round(most))}`, top + 28);
    context.fillStyle = this.accent;
    context.globalAlpha = 0.55;
    const first = Math.max(0, Math.floor(this.view.from / width)), last = Math.min(flight.length - 1, Math.ceil(this.view.to / width));
    for (let at = first; at <= last; at += 1) {
      const size = tall * flight[at] / most, left = Math.round(Math.max(this.gutter, this.x(at * width)));
      if (size) context.fillRect(left, top + tall - size, Math.max(1, Math.round(Math.min(this.width, this.x((at + 1) * width))) - left), size);
    }
    context.globalAlpha = 1;
    context.fillStyle = this.line;
    context.fillRect(this.gutter, top + tall, this.width - this.gutter, 1);
  }

  drawBody() {
    const { gpus } = this.drawn, tall = gpus.length * this.lane + GAP;
    const context = sharp(this.body, this.width, tall);
    // Rows that are scrolled out of sight are not drawn, but on paper all are.
    const first = printing ? 0 : Math.max(0, Math.floor(this.box.scrollTop / this.lane) - 1);
    const last = printing ? gpus.length : Math.min(gpus.length, Math.ceil((this.box.scrollTop + (this.box.clientHeight || 760)) / this.lane) + 1);
    const rows = Array.from({ length: Math.max(0, last - first) }, (_, at) => first + at);
    const x = (time) => this.x(time);
    context.save();
    context.beginPath();
    context.rect(this.gutter, 0, this.width - this.gutter, tall);
    context.clip();
    rows.forEach((row) => this.tracks.draw(context, row, x, this.view.from, this.view.to, GAP + row * this.lane, this.track, this.fills, this.dense));
    if (this.reading) rows.forEach((row) => this.drawReading(context, row));
    context.fillStyle = this.ink;
    context.globalAlpha = 0.16;
    let before = -9;
    for (const [, , from] of this.drawn.steps) {
      const at = this.x(from);
      if (from >= this.view.from && from <= this.view.to && at - before > 5) { context.fillRect(at, 0, 1, tall); before = at; }
    }
    context.globalAlpha = 1;
    context.restore();
    rows.forEach((row) => this.label(context, this.rowName(gpus[row]), GAP + row * this.lane + this.track / 2 + 4, false));
  }

  rowName(gpu) {
    const name = gpuName(gpu);
    return page.unit !== "GPU" || gpu.rank === null || gpu.part === "rollout" || this.gutter < 100 ? name : `${name}, GPU ${gpu.gpu}`;
  }

  drawReading(context, row) {
    const line = this.reading.lines[row], width = this.drawn.end_us / this.drawn.reading_pieces;
    const top = GAP + row * this.lane + this.track + 2, tall = READING - 5;
    const first = Math.max(0, Math.floor(this.view.from / width) - 1), last = Math.min(line.length - 1, Math.ceil(this.view.to / width) + 1);
    context.strokeStyle = this.ink2;
    context.lineWidth = 1;
    context.beginPath();
    let pen = -9;
    for (let at = first; at <= last; at += 1) {
      if (line[at] < 0) continue;
      const x = this.x((at + 0.5) * width), y = top + tall * (1 - line[at] / 1000);
      if (at - pen > 6) context.moveTo(x, y); else context.lineTo(x, y);
      pen = at;
    }
    context.stroke();
    context.fillStyle = this.line;
    context.fillRect(this.gutter, top + tall, this.width - this.gutter, 1);
  }

  stepAt(time) { return this.drawn.steps.find(([, , from, to]) => time >= from && time < to); }

  point(event, time) {
    const y = event.clientY - this.body.getBoundingClientRect().top;
    const row = Math.floor((y - GAP / 2) / this.lane), gpu = this.drawn.gpus[row];
    if (!gpu || event.clientX - this.body.getBoundingClientRect().left < this.gutter) { hideTip(); return; }
    const found = this.tracks.at(row, time, this.dense), step = this.stepAt(time);
    const rows = found.name ? [[colour(found.name), categoryName(found.name), seconds((found.to - found.from) / 1e6)]]
      : found.parts.slice(0, 7).map(([name, share]) => [colour(name), categoryName(name), percent(share)]);
    for (const counter of this.drawn.readings) {
      const value = counter.lines[row][Math.floor(time / (this.drawn.end_us / this.drawn.reading_pieces))];
      if (value >= 0) rows.push([null, COUNTER_NAMES[counter.counter] || counter.counter, said(value / 1000 * counter.top, counter.unit === "1" ? "share" : counter.unit)]);
    }
    const where = [page.unit === "GPU" && gpu.rank !== null && `GPU ${gpu.gpu}`, gpu.model, gpu.host].filter(Boolean).join(", ");
    showTip(event.clientX, event.clientY, `${gpuName(gpu)}${where ? ` (${where})` : ""}`, rows,
      `${step ? `step ${step[1]}, ` : ""}${moment(found.from / 1e6, 0.01)} to ${moment(found.to / 1e6, 0.01)}${found.name ? "" : found.exact ? ": zoom in for each interval" : ": shares of this piece of time"}`);
  }

  pointTop(event, time) {
    const step = this.stepAt(time), { flight } = this.drawn;
    const rows = flight ? [[null, "sequences in flight", short(flight[Math.max(0, Math.min(flight.length - 1, Math.floor(time / (this.drawn.end_us / flight.length))))])]] : [];
    if (step || rows.length) showTip(event.clientX, event.clientY, step ? `step ${step[1]}: ${seconds((step[3] - step[2]) / 1e6)}` : moment(time / 1e6, 0.1), rows);
  }

  brush() {
    const at = (event) => { const frame = this.mini.getBoundingClientRect(); return ((event.clientX - frame.left - this.gutter) / (frame.width - this.gutter)) * this.view.end; };
    let from = null;
    this.mini.addEventListener("pointerdown", (event) => { from = at(event); this.mini.setPointerCapture(event.pointerId); });
    this.mini.addEventListener("pointermove", (event) => { if (from !== null && Math.abs(at(event) - from) > this.view.end / 400) this.view.set(Math.min(from, at(event)), Math.max(from, at(event))); });
    this.mini.addEventListener("pointerup", (event) => {
      if (from !== null && Math.abs(at(event) - from) <= this.view.end / 400) this.view.set(from - this.view.span / 2, from + this.view.span / 2);
      from = null;
    });
  }

  /** The window around the steps of an address, µs; null if it names none. */
  around(name) {
    const members = stepsAt(name);
    if (!members.length) return null;
    const from = Math.min(...members.map((step) => step[2])), to = Math.max(...members.map((step) => step[3]));
    return [from - (to - from) * 0.05, to + (to - from) * 0.05];
  }

  /** Show the part of the run that an address means: its window of time, else its step, else all. */
  place({ step, time }) {
    const [, from, to] = /^(\d+)-(\d+)$/.exec(time) || [];
    this.view.set(...(from === undefined ? this.around(step) || [0, this.view.end] : [Number(from), Number(to)]));
  }

  /** Put the window into the address once it is at rest. */
  remember() {
    clearTimeout(this.resting);
    this.resting = setTimeout(() => {
      if (position.section !== "timeline") return;
      const rest = new View(this.view.end);
      rest.set(...(this.around(position.step) || [0, this.view.end]));
      const same = Math.abs(rest.from - this.view.from) < 1 && Math.abs(rest.to - this.view.to) < 1;
      const time = same ? "" : `${Math.round(this.view.from)}-${Math.round(this.view.to)}`;
      if (time !== (position.time || "")) amend({ time });
    }, 200);
  }
}

function timelinePanel() {
  const { timeline, ledger } = page;
  const made = shownTimeline = new Timeline(timeline, ledger), { view } = made;
  redraws.push(() => { made.theme(); made.draw(); });
  const button = (text, label, act) => h("button", { type: "button", class: "plain", "aria-label": label, title: label, on: { click: act } }, text);
  const numbers = timeline.steps.map((step) => step[1]);
  const field = h("input", { type: "number", min: Math.min(...numbers), max: Math.max(...numbers), "aria-label": "step to show", style: { width: "84px" }, placeholder: "step" });
  field.addEventListener("change", () => {
    const known = stepsAt(field.value).length > 0;
    field.setAttribute("aria-invalid", String(!known));
    if (known) navigate(toStep(field.value));
  });
  const counters = timeline.readings.length ? h("label", {}, about("Below each GPU"), h("select", { on: { change: (event) => { made.reading = timeline.readings[Number(event.target.value)] || null; made.draw(); } } },
    timeline.readings.map((reading, at) => h("option", { value: at }, `${COUNTER_NAMES[reading.counter] || reading.counter}, 0 to ${said(reading.top, reading.unit === "1" ? "share" : reading.unit)}`)), h("option", { value: -1 }, "nothing"))) : null;
  const where = h("span", { class: "quiet small", role: "status" });
  made.moved = () => { made.remember(); where.textContent = `${moment(view.from / 1e6, view.span / 1e8)} to ${moment(view.to / 1e6, view.span / 1e8)}`; };
  const used = ledger.categories.filter((_, at) => ledger.gpu_s[at] > 0).map(([name]) => name);
  const drawn = timeline.gpus.length < timeline.of ? about(`${whole(timeline.gpus.length)} of ${whole(timeline.of)} GPUs are drawn, all are counted`) : ledger.count;
  return [card(about("What each GPU did"), `${drawn}${timeline.exact_steps === null ? "" : `; ${whole(timeline.exact_steps)} of ${whole(ledger.steps)} steps interval by interval`}`, null,
    h("div", { class: "tools", style: { "margin-bottom": "8px" } }, h("span", { class: "joined" }, button("−", "zoom out", () => view.zoom(2)), button("+", "zoom in", () => view.zoom(0.5)), button("◀", "earlier", () => view.pan(-0.5)), button("▶", "later", () => view.pan(0.5)), button("all", "show the whole run", () => navigate({ section: "timeline" }))),
      h("label", {}, "Step", field), h("button", { type: "button", class: "plain", on: { click: () => navigate(toStep(timeline.longest)) } }, "longest step"), counters, where),
    made.node,
    h("div", { class: "legend" }, used.map((name) => h("span", {}, chip(colour(name)), categoryName(name)))),
    h("p", { class: "quiet small wide-only", style: { "margin-top": "6px" } }, "Full height is work, lower is waiting. A click on a step selects it. Drag to move, Ctrl and wheel or a double click to zoom, arrows and + − with the keyboard; drag over the whole run to choose a part of it."))];
}
