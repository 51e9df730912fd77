/* Numbers as they are read. What is exact is in the disclosures. */
const COUNT = new Intl.NumberFormat("en-US");
const TENTHS = new Intl.NumberFormat("en-US", { maximumFractionDigits: 1 });
const whole = (value) => COUNT.format(Math.round(value));

/** About three digits, thousands apart. */
function short(value) {
  const size = Math.abs(value);
  if (size >= 100 || Number.isInteger(value)) return whole(value);
  if (size >= 10) return value.toFixed(1);
  if (size >= 1) return value.toFixed(2);
  if (size >= 0.001) return value.toPrecision(2);
  return size < 1e-6 ? "0" : value.toExponential(1);
}

function percent(share) {
  if (share === 0 || share === 1) return `${100 * share} %`;
  if (share > 0 && share < 0.001) return "<0.1 %";
  return `${(100 * share).toFixed(Math.abs(share) < 0.0995 ? 1 : 0)} %`;
}

function seconds(value) {
  const size = Math.abs(value);
  if (size === 0) return "0 s";
  if (size < 1e-3) return `${short(value * 1e6)} µs`;
  if (size < 1) return `${short(value * 1e3)} ms`;
  if (size < 120) return `${short(value)} s`;
  if (size < 7200) return `${short(value / 60)} min`;
  return `${short(value / 3600)} h`;
}

/** A moment of the run, to be compared with others: h:mm:ss, with more digits where `step` is small. */
function moment(value, step = 1) {
  const sign = value < 0 ? "-" : "";
  let left = Math.abs(value);
  const digits = step >= 1 ? 0 : step >= 0.1 ? 1 : step >= 0.01 ? 2 : 3;
  left = Number(left.toFixed(digits));
  const hours = Math.floor(left / 3600), minutes = Math.floor((left % 3600) / 60);
  const rest = (left % 60).toFixed(digits).padStart(digits ? 3 + digits : 2, "0");
  return hours ? `${sign}${hours}:${String(minutes).padStart(2, "0")}:${rest}` : `${sign}${minutes}:${rest}`;
}

const SCALES = [[1e15, "P"], [1e12, "T"], [1e9, "G"], [1e6, "M"], [1e3, "k"]];

function scaled(value, unit) {
  for (const [size, sign] of SCALES) if (Math.abs(value) >= size) return `${short(value / size)} ${sign}${unit}`;
  return `${short(value)} ${unit}`;
}

/** A text about GPUs, about what stands for them where none is known. */
const about = (text) => text.replaceAll("GPU", page.unit);

/** What one of them is called: a GPU by its rank, else by its number; what stands for one by its own name. */
function gpuName({ gpu, key, rank, part }) {
  if (page.unit !== "GPU") return key;
  return part === "rollout" ? `GPU ${gpu} rollout` : rank === null ? `GPU ${gpu}` : `rank ${rank}`;
}

/** GPU time, all of a page in one unit. */
const gpuTotal = () => (page.ledger ? page.ledger.wall_s * page.ledger.gpus : 0);
function gpuUnit() {
  const total = gpuTotal();
  const [size, name] = total >= 3600 ? [3600, "GPU-h"] : total >= 600 ? [60, "GPU-min"] : [1, "GPU-s"];
  return [size, about(name)];
}

function gpuNumber(value) {
  const shown = value / gpuUnit()[0];
  if (shown === 0) return "0";
  if (Math.abs(shown) < 0.001) return "<0.001";
  return shown < 0.1 ? shown.toFixed(3) : shown < 100 ? shown.toFixed(2) : whole(shown);
}

/** The unit of the page as that of a figure says it: devices are GPUs where ranks stand for them. */
const gpuUnitOf = (unit) => gpuUnit()[1].replace(/^\w+/, unit.split("-")[0]);
const isGpuTime = (unit) => unit === "GPU-s" || unit === "rank-s";

const gpuTime = (value) => `${gpuNumber(value)} ${gpuUnit()[1]}`;

function said(value, unit) {
  if (value === null || value === undefined) return "–";
  if (typeof value !== "number") return String(value);
  switch (unit) {
    case "s": return seconds(value);
    case "GPU-s": case "rank-s": return `${gpuNumber(value)} ${gpuUnitOf(unit)}`;
    case "tokens": return TENTHS.format(value);
    case "B": case "By": return scaled(value, "B");
    case "J": return scaled(value, "J");
    case "W": return scaled(value, "W");
    case "Hz": return scaled(value, "Hz");
    case "Cel": return `${short(value)} °C`;
    case "share": return percent(value);
    case "1": case "": return short(value);
    default: return `${short(value)} ${unit}`;
  }
}

/** Round numbers between two others, about `count` of them. */
function ticks(low, high, count) {
  const raw = (high - low) / Math.max(1, count);
  if (!(raw > 0)) return [low];
  const power = 10 ** Math.floor(Math.log10(raw));
  const step = power * ([1, 2, 5, 10].find((size) => size * power >= raw) || 10);
  const found = [];
  for (let at = Math.ceil(low / step - 1e-9) * step; at <= high + step * 1e-9; at += step) found.push(Number(at.toPrecision(12)));
  return found;
}

/** The same for seconds, which are not decimal. */
function timeTicks(low, high, count) {
  const raw = (high - low) / Math.max(1, count);
  if (raw < 8) return ticks(low, high, count);
  const step = [10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400].find((size) => size >= raw) || 86400 * Math.ceil(raw / 86400);
  const found = [];
  for (let at = Math.ceil(low / step) * step; at <= high; at += step) found.push(at);
  return found;
}
