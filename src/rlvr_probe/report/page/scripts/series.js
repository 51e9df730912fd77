/* Charts of a chapter's series, from the names and units of their columns alone. */
const IDS = ["unit", "step_id", "batch_id", "workload_step"];
const QUANTILES = ["min", "p10", "p50", "mean", "p90", "p95", "p99", "max"];
const GROUPS = 8;

function column(series, name) {
  const at = series.columns.indexOf(name);
  return at < 0 ? null : series.rows.map((row) => row[at]);
}

/** What is across, what rows are told apart by, and what is drawn of each. */
function shape(series) {
  const dims = series.columns.filter((_, at) => series.units[at] === "");
  const values = series.columns.filter((_, at) => series.units[at] !== "");
  const numeric = (name) => series.rows.some((row) => row[series.columns.indexOf(name)] !== null) && column(series, name).every((value) => value === null || typeof value === "number");
  let x = ["step", "workload_step", "batch_id", "unit"].find((name) => dims.includes(name) && numeric(name) && new Set(column(series, name)).size > 1);
  if (!x) x = series.id.endsWith("histogram") || !dims.length || values[0] === "time" ? values[0] : dims.find(numeric);
  const groups = dims.filter((name) => name !== x && !IDS.includes(name));
  return { x, groups, values: values.filter((name) => name !== x), unitOf: (name) => series.units[series.columns.indexOf(name)] };
}

function seriesCard(series, drawn = true) {
  const content = !drawn ? h("p", { class: "quiet small" }, series.meaning) : series.rows.length ? drawnSeries(series) : h("p", { class: "quiet small" }, "No rows.");
  const rows = () => h("div", { class: "scroll tall", tabindex: "0", role: "region", "aria-label": `rows of ${series.id}` }, table(series.columns.map((name, at) => [columnName(name, series.units[at]), "number"]),
    series.rows.slice(0, 300).map((row) => row.map((value, at) => [value === null ? "–" : typeof value === "number" ? said(value, series.units[at] === "" ? "id" : series.units[at]).replace(/ id$/, "") : String(value), "number"]))));
  const made = card(titled(series), series.total > series.rows.length ? `${whole(series.rows.length)} of ${whole(series.total)} rows are drawn` : "", null, content,
    later("rows, meaning and query", () => h("div", {}, listed([["series", h("code", {}, series.id)], ["meaning", series.meaning], ["tables read", h("code", {}, series.inputs.join(", "))],
      series.rows.length > 300 && ["rows", `the first 300 of ${whole(series.total)}`]]), rows(), sql(page.queries[series.query]))));
  made.dataset.about = `series:${series.id}`;
  if (content.querySelectorAll(".plot").length > 1) made.classList.add("wide");
  return made;
}

function titled(series) {
  const parts = series.id.split(".");
  const generic = /^by (step|batch|turn|process)$|^histogram$/.test(series.title);
  return generic ? `${readable(parts.slice(1, -1).join(" ") || parts[0])} ${series.title}` : series.title;
}

function drawnSeries(series) {
  const found = shape(series);
  if (found.values.length > 14) return h("p", { class: "quiet small" }, "Too many columns for a chart: see the rows.");
  if (!found.x || !found.values.length) return categorical(series, found);
  if (series.id.endsWith("histogram")) return histogram(series, found);
  const xs = column(series, found.x);
  if (found.groups.length) return ofGroups(series, found, xs);
  const order = xs.map((_, at) => at).filter((at) => xs[at] !== null).sort((a, b) => xs[a] - xs[b]);
  if (order.length < 2) return flat(series, found);
  const take = (name) => { const all = column(series, name); return order.map((at) => all[at]); };
  const across = order.map((at) => xs[at]);
  const several = found.x === "tokens" || new Set(across).size < across.length;
  return charts(found, (names, unit) => (several ? scattered(found, across, names, take, unit) : curved(found, across, names, take, unit)), take, series);
}

/** Columns of one unit in one chart; those that never change are only said. */
function charts(found, draw, take, series, apart) {
  const panels = new Map(), constant = [];
  for (const name of found.values) {
    const ys = take(name).filter((value) => value !== null);
    if (!ys.length) continue;
    if (ys.every((value) => value === ys[0]) && !QUANTILES.includes(name)) { constant.push(`${readable(name)} ${said(ys[0], found.unitOf(name))}`); continue; }
    const unit = found.unitOf(name), share = unit === "share";
    const most = ys.reduce((a, b) => Math.max(a, b), 0);
    const size = QUANTILES.includes(name) ? "spread" : share ? "shares" : unit === "1" ? name : Math.floor(Math.log10(most || 1));
    const key = apart ? name : `${unit}|${size}`;
    panels.set(key, [...(panels.get(key) || []), name]);
  }
  const made = [...panels.values()].map((names) => h("div", {}, panels.size > 1 && names.length > 1 ? h("p", { class: "quiet small" }, panelName(names, found)) : null,
    draw(names, found.unitOf(names[0]), `${names.every((name) => !QUANTILES.includes(name) && take(name).every((value) => value === null || (value >= 0 && value <= 1))) ? "share " : ""}${series.id}`)));
  return h("div", {}, panels.size > 1 ? h("div", { class: "grid" }, made) : made,
    constant.length ? h("p", { class: "quiet small" }, `Everywhere: ${constant.join(", ")}.`) : null);
}

/** What a column is called: time of GPUs, with its unit, is not called seconds. */
function columnName(name, unit) {
  if (!isGpuTime(unit)) return readable(name);
  return `${NAMES.has(name) ? categoryName(name) : `${unit.split("-")[0]} time`}, ${gpuUnitOf(unit)}`;
}

const panelName = (names, found) => (names.length > 2 && names.every((name) => QUANTILES.includes(name)) ? `distribution${found.unitOf(names[0]) === "1" ? "" : `, ${found.unitOf(names[0])}`}` : names.map((name) => columnName(name, found.unitOf(name))).join(", "));
const stepText = (found) => (value) => (found.x === "time" ? percent(value) : String(value));
const xTitle = (found, across) => (at) => (found.x === "time" ? `after ${percent(across[at])} of the time` : `${readable(found.x)} ${across[at]}`);
const xLabel = (found) => (found.x === "time" ? "share of the rollout's time" : axisName([found.x], found.unitOf(found.x)));

/** What an axis shows, with its unit. */
function axisName(names, unit) {
  const what = names.length === 1 && !QUANTILES.includes(names[0]) ? readable(names[0]) : "";
  const in_ = isGpuTime(unit) ? gpuUnitOf(unit) : unit === "share" ? "share, %" : { By: "bytes", B: "bytes", Cel: "°C", 1: "" }[unit] ?? unit;
  return what.split(" ").includes(in_ === "s" ? "seconds" : in_) ? what : [what, in_].filter(Boolean).join(", ") || "value";
}

/** Where a point of a chart by step leads; nowhere in other charts. */
const leads = (found, xs) => (found.x === "step" && allSteps().length ? (at) => navigate(toStep(xs[at])) : undefined);

function curved(found, across, names, take, unit) {
  const bands = [], curves = [];
  const has = (name) => names.includes(name);
  const alike = has("min") && has("max") && take("min").every((value, at) => value === take("max")[at]);
  if (has("min") && has("max") && !alike) bands.push({ name: "least to most", low: take("min"), high: take("max"), fill: "var(--s-1)", opacity: 0.14 });
  const lowQ = has("p10") ? "p10" : "p50";
  if (has(lowQ) && has("p90") && !alike) bands.push({ name: `${lowQ === "p10" ? "P10" : "median"} to P90`, low: take(lowQ), high: take("p90"), fill: "var(--s-1)", opacity: 0.28 });
  const style = { p50: ["var(--s-1)", "2px"], mean: ["var(--s-2)", "1.6px", "5 3"], p99: ["var(--s-6)", "1.3px"], max: ["var(--s-8)", "1px", "1 3"] };
  let next = 1;
  for (const name of names) {
    if (["min", "p10", "p90", "p95"].includes(name) && bands.length) continue;
    if (alike && name !== "mean") continue;
    const [fill, width, dash] = style[name] && !alike && names.length > 1 ? style[name] : [`var(--s-${1 + (next++ - 1) % 8})`];
    curves.push({ name: alike ? "value" : HEADS[name] || readable(name), ys: take(name), fill, width, dash });
  }
  return lines({ xs: across, bands, curves, unit, height: 190, xName: xLabel(found), yName: axisName(names, unit), go: leads(found, across), xText: stepText(found), title: xTitle(found, across), label: `${names.map(readable).join(", ")} by ${readable(found.x)}` });
}

function scattered(found, across, names, take, unit) {
  const shown = names.filter((name) => !QUANTILES.includes(name) || ["p50", "max", "mean"].includes(name)).slice(0, 4);
  return lines({ xs: across, dots: shown.map((name, at) => ({ name: HEADS[name] || readable(name), ys: take(name), fill: `var(--s-${at + 1})` })), unit, height: 190,
    xName: xLabel(found), yName: axisName(shown, unit), go: leads(found, across), xText: stepText(found), title: xTitle(found, across), label: `${shown.map(readable).join(", ")} by ${readable(found.x)}` });
}

/** One line for each function, tool or rank, or dots where there are very many. */
function ofGroups(series, found, xs) {
  const place = found.groups.map((name) => series.columns.indexOf(name));
  const label = (row) => place.map((at) => (row[at] === null ? "–" : found.groups.length === 1 && typeof row[at] === "number" ? `${readable(found.groups[0])} ${row[at]}` : row[at])).join(", ");
  const names = [...new Set(series.rows.map(label))], across = [...new Set(xs.filter((value) => value !== null))].sort((a, b) => a - b);
  const where = new Map(across.map((value, at) => [value, at]));
  const take = (name) => column(series, name);
  return charts(found, ([name], unit) => {
    const all = take(name);
    if (names.length > GROUPS) {
      const order = xs.map((_, at) => at).filter((at) => xs[at] !== null && all[at] !== null).sort((a, b) => xs[a] - xs[b]);
      return lines({ xs: order.map((at) => xs[at]), dots: [{ name: readable(name), ys: order.map((at) => all[at]), fill: "var(--s-1)", opacity: 0.35 }], unit, height: 190, xName: xLabel(found), yName: axisName([name], unit), go: leads(found, order.map((at) => xs[at])), xText: stepText(found),
        keys: [{ name: readable(found.groups[0]), said: (at) => label(series.rows[order[at]]) }], title: (at) => `${readable(found.x)} ${xs[order[at]]}`, label: `${readable(name)} by ${readable(found.x)}` });
    }
    const curves = names.map((name, number) => ({ name: name, ys: across.map(() => null), fill: `var(--s-${number + 1})` }));
    series.rows.forEach((row, at) => { if (where.has(xs[at])) curves[names.indexOf(label(row))].ys[where.get(xs[at])] = all[at]; });
    return across.length < 2 ? bars(names.map((name, number) => [name, curves[number].ys[0]]), unit, found.groups.length === 1 && found.groups[0])
      : lines({ xs: across, curves, unit, height: 180, xName: xLabel(found), yName: axisName([name], unit), go: leads(found, across), xText: stepText(found), title: xTitle(found, across), label: `${readable(name)} by ${readable(found.x)}` });
  }, take, series, true);
}

function bars(pairs, unit, kind) {
  const most = Math.max(...pairs.map(([, value]) => value || 0)) || 1;
  return h("div", { class: "scroll" }, h("table", {}, h("tbody", {}, pairs.slice(0, 60).map(([name, value]) => h("tr", {}, h("th", { scope: "row" }, kind in KINDS || LINKED.includes(kind) ? reference(kind, name, name) : name),
    h("td", { class: "number" }, said(value, unit)), h("td", { style: { width: "50%" } }, h("span", { class: "meter" }, h("span", { style: { width: `${100 * (value || 0) / most}%`, background: "var(--s-1)" } }))))))));
}

function categorical(series, found) {
  const dim = series.columns.findIndex((_, at) => series.units[at] === ""), name = found.values[0];
  if (dim < 0 || !name) return h("p", { class: "quiet small" }, "See its rows.");
  return bars(series.rows.map((row) => [String(row[dim]), row[series.columns.indexOf(name)]]), found.unitOf(name), series.columns[dim]);
}

/** Columns of each value by class, one on another for each source. */
function histograms(series, found) {
  const take = (name) => column(series, name), xs = take(found.x);
  const labels = [...new Set(xs)].sort((a, b) => a - b), place = new Map(labels.map((value, at) => [value, at]));
  const groups = take(found.groups[0]), every = [...new Set(groups)].sort(), names = every.slice(0, GROUPS);
  const legend = every.length > 1 && h("div", { class: "legend" }, names.map((name, at) => h("span", {}, chip(`var(--s-${at + 1})`), name)), every.length > GROUPS && h("span", {}, `${whole(every.length - GROUPS)} more are not drawn`));
  return h("div", {}, h("div", { class: "grid" }, found.values.map((value) => {
    const parts = names.map((name, at) => ({ name, fill: `var(--s-${at + 1})`, values: labels.map(() => 0) }));
    take(value).forEach((count, at) => { if (names.includes(groups[at])) parts[names.indexOf(groups[at])].values[place.get(xs[at])] += count; });
    return h("div", {}, stackedColumns({ labels, parts, share: false, height: 170, xName: axisName([found.x], found.unitOf(found.x)), yName: axisName([value], found.unitOf(value)), yText: short,
      label: `${readable(value)} by ${readable(found.x)}`, tell: (at) => ({ title: `${whole(labels[at])} ${readable(found.x)} or more`, rows: parts.map((part) => [part.fill, part.name, whole(part.values[at])]) }) }));
  })), legend);
}

function histogram(series, found) {
  if (found.groups.length) return histograms(series, found);
  const xs = column(series, found.x), ys = column(series, found.values[0]);
  if (xs.length === 1) return h("p", { class: "small" }, `All ${whole(ys[0])} ${readable(found.values[0])} have ${short(xs[0])} ${readable(found.x)}.`);
  return stackedColumns({ labels: xs, parts: [{ name: readable(found.values[0]), fill: "var(--s-1)", values: ys }], share: false, height: 170, xName: axisName([found.x], found.unitOf(found.x)), yName: axisName([found.values[0]], found.unitOf(found.values[0])), yText: short,
    label: `${readable(found.values[0])} by ${readable(found.x)}`, tell: (at) => ({ title: `${short(xs[at])} ${readable(found.x)}`, rows: [["var(--s-1)", readable(found.values[0]), whole(ys[at])]] }) });
}

function flat(series, found) {
  const row = series.rows[0];
  return listed(found.values.map((name) => [readable(name), said(row[series.columns.indexOf(name)], found.unitOf(name))]));
}

/** How the lengths of responses are spread over the run. */
function lengthsCard() {
  const lengths = page.lengths;
  const columns = lengths.first.length, classes = lengths.cells.map(([, band]) => band);
  const low = Math.min(...classes), high = Math.max(...classes), rows = high - low + 1;
  const counts = new Map(lengths.cells.map(([bar, band, count]) => [bar * 1000 + band, count]));
  const sums = lengths.first.map((_, bar) => lengths.cells.reduce((sum, [band, , count]) => sum + (band === bar ? count : 0), 0));
  const from = (band) => Math.ceil(2 ** (band / lengths.per_doubling)), to = (band) => Math.ceil(2 ** ((band + 1) / lengths.per_doubling)) - 1;
  const most = Math.max(...lengths.cells.map(([bar, , count]) => count / sums[bar]));
  return card("Response lengths over the run", `share of a step's responses${lengths.cap ? `; cap ${whole(lengths.cap)} tokens` : ""}`, h("span", { class: "quiet small" }, "0 %", h("span", { class: "ramp" }), percent(most)),
    heatMap({ rows, columns, tall: Math.max(120, Math.min(260, rows * 8)), label: "response lengths by step", leftName: "tokens",
      value: (row, bar) => { const count = counts.get(bar * 1000 + high - row); return count ? 0.06 + 0.94 * Math.sqrt(count / sums[bar] / most) : 0; },
      go: (row, bar) => navigate(toBar(lengths, bar)),
      tell: (row, bar) => { const band = high - row, count = counts.get(bar * 1000 + band) || 0; return { title: `${barName(lengths, bar)}: ${whole(from(band))} to ${whole(Math.max(from(band), to(band)))} tokens`, rows: [[null, "responses", whole(count)], [null, "of the step's", percent(count / sums[bar])]] }; },
      left: [whole(to(high)), whole(from(low))], bottom: [barName(lengths, 0), columns > 1 ? barName(lengths, columns - 1) : ""] }),
    later("query", () => sql(lengths.query)));
}

/** What a chapter has beside a panel that shows the same thing: its figures, and the rows of its series. */
function besides(chapter) {
  return [chapter.figures.length ? card("Metrics", "a number opens its meaning, query and evidence", null, figuresOf(chapter)) : null,
    h("div", { class: "grid" }, chapter.series.filter((chart) => chart.rows.length).map((chart) => seriesCard(chart, false)))];
}

function chapterPanel(chapter) {
  const series = chapter.series.filter((chart) => chart.rows.length);
  return [
    chapter.notes.length ? h("ul", { class: "notes" }, chapter.notes.map((note) => h("li", { class: "note" }, note))) : null,
    chapter.name === "lengths" && page.lengths ? lengthsCard() : null,
    chapter.figures.length ? card("Metrics", "a number opens its meaning, query and evidence", null, figuresOf(chapter)) : null,
    h("div", { class: "grid" }, series.map((chart) => seriesCard(chart))),
  ];
}
