/* What the timeline is drawn of: intervals where they are there, shares of pieces of time elsewhere. */
const REPEAT = 1_000_000;

/** Intervals of each GPU in a window: where each begins, and its category. */
function unpackExact(window) {
  const lines = window.lines.map((line) => {
    const starts = new Float64Array(line.length / 2 + 1), names = new Uint8Array(line.length / 2);
    let now = window.start;
    for (let at = 0; at < names.length; at += 1) {
      starts[at] = now;
      names[at] = line[2 * at + 1];
      now += line[2 * at];
    }
    starts[names.length] = now;
    return { starts, names };
  });
  return { ...window, lines };
}

/** Of each piece of time, [category, share in percent] again and again. */
function unpackOver(line, pieces) {
  const found = [];
  let piece = [], sum = 0, before = [];
  for (const number of line) {
    if (number >= REPEAT) { for (let count = number - REPEAT; count > 0; count -= 1) found.push(before); continue; }
    piece.push(number >> 7, number & 127);
    sum += number & 127;
    if (sum === 100) { found.push(before = piece); piece = []; sum = 0; }
  }
  while (found.length < pieces) found.push(before);
  return found;
}

/** The first place in a sorted array whose next value is beyond `value`. */
function placeOf(starts, value) {
  let low = 0, high = starts.length - 2;
  while (low < high) {
    const middle = (low + high + 1) >> 1;
    if (starts[middle] <= value) low = middle; else high = middle - 1;
  }
  return low;
}

/** Intervals are drawn lower where a GPU waits, so that work stands out without colour too. */
const heightOf = (name) => (name.startsWith("wait.") ? 0.62 : name === "bubble" || name === "unaccounted" ? 0.4 : 1);

class Tracks {
  constructor(timeline, categories) {
    this.names = categories;
    this.heights = categories.map(heightOf);
    this.pieces = timeline.pieces;
    this.width = timeline.end_us / timeline.pieces;
    this.over = timeline.over.map((line) => unpackOver(line, timeline.pieces));
    this.exact = timeline.exact.map(unpackExact);
    this.pixels = null;
  }

  /** Whether there are too many intervals between two times for each to be drawn. */
  dense(from, to, rows, width) {
    let count = 0;
    for (const window of this.exact) {
      const low = Math.max(from, window.start), high = Math.min(to, window.end);
      if (low < high) count += ((window.lines[0] || { names: [] }).names.length * rows * (high - low)) / (window.end - window.start);
    }
    return count > 14_000 || (to - from) / width > this.width * 2.5;
  }

  draw(context, row, x, from, to, top, tall, fills, dense) {
    const windows = dense ? [] : this.exact.filter((span) => span.end > from && span.start < to);
    let now = from;
    for (const window of windows) {
      if (window.start > now) this.pieceRange(context, row, x, now, window.start, top, tall, fills);
      this.exactRange(context, window, row, x, Math.max(from, window.start), Math.min(to, window.end), top, tall, fills);
      now = window.end;
    }
    if (now < to) this.pieceRange(context, row, x, now, to, top, tall, fills);
  }

  exactRange(context, window, row, x, from, to, top, tall, fills) {
    const { starts, names } = window.lines[row];
    if (!names.length) return;
    for (let at = placeOf(starts, from); at < names.length && starts[at] < to; at += 1) {
      const left = x(Math.max(from, starts[at])), right = x(Math.min(to, starts[at + 1]));
      const size = tall * this.heights[names[at]];
      context.fillStyle = fills[names[at]];
      context.fillRect(left, top + tall - size, Math.max(right - left, 0.15), size);
    }
  }

  pieceRange(context, row, x, from, to, top, tall, fills) {
    const line = this.over[row];
    const last = Math.min(this.pieces - 1, Math.floor((to - 0.5) / this.width));
    for (let at = Math.max(0, Math.floor(from / this.width)); at <= last; at += 1) {
      const left = x(Math.max(from, at * this.width)), right = x(Math.min(to, (at + 1) * this.width));
      let floor = top + tall;
      const piece = line[at];
      for (let part = 0; part < piece.length; part += 2) {
        const size = tall * piece[part + 1] / 100;
        context.fillStyle = fills[piece[part]];
        context.fillRect(left, floor - size, right - left + 0.3, size);
        floor -= size;
      }
    }
  }

  /** What GPU number `row` of those drawn did at a moment: one interval, or shares of a piece. */
  at(row, time, dense) {
    const window = this.exact.find((span) => time >= span.start && time < span.end);
    if (window && !dense) {
      const { starts, names } = window.lines[row];
      if (names.length) {
        const at = placeOf(starts, time);
        return { name: this.names[names[at]], from: starts[at], to: starts[at + 1] };
      }
    }
    const at = Math.max(0, Math.min(this.pieces - 1, Math.floor(time / this.width)));
    const piece = this.over[row][at], parts = [];
    for (let part = 0; part < piece.length; part += 2) parts.push([this.names[piece[part]], piece[part + 1] / 100]);
    return { parts: parts.sort((a, b) => b[1] - a[1]), from: at * this.width, to: (at + 1) * this.width, exact: Boolean(window) };
  }

  /** Mean shares of all GPUs that are drawn, for the strip of the whole run. */
  mean() {
    return Array.from({ length: this.pieces }, (_, at) => {
      const sums = new Map();
      for (const line of this.over) for (let part = 0; part < line[at].length; part += 2) sums.set(line[at][part], (sums.get(line[at][part]) || 0) + line[at][part + 1] / this.over.length);
      return [...sums].sort((a, b) => a[0] - b[0]);
    });
  }
}
