/* Tables of a chapter's figures, put together from their ids alone: a new chapter needs nothing here. */
const COLUMNS = ["count", "mean", "cv", "min", "p50", "p90", "p95", "p99", "max", "p99_over_p50", "max_over_p50"];
const HEADS = { count: "count", mean: "mean", cv: "spread", min: "least", p50: "median", p90: "P90", p95: "P95", p99: "P99", max: "most", p99_over_p50: "P99 / median", max_over_p50: "most / median" };
const SHOWN = 40;
/* Kinds that have no id, and are called by their name. */
const LINKED = ["function", "tool", "engine"];

const readable = (text) => text.replace(/[._]/g, " ");
const ending = (id) => id.slice(id.lastIndexOf(".") + 1);
const beginning = (id) => id.slice(0, Math.max(0, id.lastIndexOf(".")));

function valueText(figure) {
  const is = definition(figure);
  if (/^(cv|.*_over_p50)$/.test(ending(is.id)) && typeof figure.value === "number") return short(figure.value);
  return said(figure.value, is.unit);
}

function interval(figure) {
  if (figure.low === undefined || figure.high === undefined || figure.low === figure.high) return null;
  const low = valueText({ ...figure, value: figure.low }), high = valueText({ ...figure, value: figure.high });
  const unitOf = (text) => (text.match(/ [^ ]+$/) || [""])[0];
  return h("div", { class: "interval" }, unitOf(low) === unitOf(high) ? `${low.slice(0, low.length - unitOf(low).length)} to ${high.slice(0, high.length - unitOf(high).length)}` : `${low} to ${high}`);
}

const valueCell = (figure, columns, plain) => h("td", { class: "number" },
  !figure ? "" : figure.value === null ? h("button", { type: "button", class: "cell quiet", title: figure.why, on: { click: (event) => toggleWhy(event.currentTarget, figure, columns) }, "aria-expanded": "false" }, "–")
    : [opened(figure, valueText(figure), columns), plain ? null : interval(figure)]);

function toggleWhy(button, figure, columns) {
  const row = button.closest("tr"), next = row.nextElementSibling;
  if (next && next.classList.contains("detail")) { next.remove(); button.setAttribute("aria-expanded", "false"); return; }
  button.setAttribute("aria-expanded", "true");
  row.after(h("tr", { class: "detail" }, h("td", { colspan: columns }, explained(figure))));
}

/** The figures of a chapter in groups: distributions, what there is one of each for, and the rest. */
function grouped(figures) {
  const plain = new Map(), by = new Map();
  for (const figure of figures) {
    const is = definition(figure);
    const into = figure.by ? by : plain;
    const key = figure.by ? `${beginning(is.id)}|${Object.keys(figure.by)}` : beginning(is.id);
    if (!into.has(key)) into.set(key, []);
    into.get(key).push(figure);
  }
  const spread = [], rest = [];
  for (const [prefix, members] of plain) {
    const canonical = members.filter((figure) => COLUMNS.includes(ending(definition(figure).id)));
    const lone = canonical.length === 1 && canonical[0].value === null && prefix.includes(".");
    if (canonical.length >= 4 || lone) spread.push([prefix, canonical]);
    rest.push(...members.filter((figure) => canonical.length < 4 ? !lone || figure !== canonical[0] : !canonical.includes(figure)));
  }
  return { spread, rest, by: [...by] };
}

function spreadTable(chapter, spread) {
  const there = COLUMNS.filter((name) => spread.some(([, members]) => members.some((figure) => ending(definition(figure).id) === name && figure.value !== null)));
  const columns = there.length + 1;
  const known = spread.filter(([, members]) => members.some((figure) => figure.value !== null));
  const name = (prefix) => readable((prefix.startsWith(`${chapter.name}.`) ? prefix.slice(chapter.name.length + 1) : prefix).replace(/_s$/, ""));
  const rows = known.map(([prefix, members]) => h("tr", { "data-about": `figure:${definition(members[0]).id}` },
    h("th", { scope: "row", title: definition(members[0]).meaning }, name(prefix), h("div", { class: "interval" }, unitName(members))),
    there.map((column) => valueCell(members.find((figure) => ending(definition(figure).id) === column), columns))));
  return known.length ? h("div", { class: "scroll" }, h("table", {},
    h("thead", {}, h("tr", {}, h("th", { scope: "col" }, ""), there.map((name) => h("th", { scope: "col", class: "number" }, HEADS[name])))), h("tbody", {}, rows))) : null;
}

function unitName(members) {
  const mean = members.map(definition).find((is) => is.id.endsWith(".mean"));
  return mean && mean.unit !== "1" && mean.unit !== "share" ? mean.unit : "";
}

/** A row's name: what is too long to be read is cut, and is there when pointed at. */
function named(kind, value) {
  const text = String(value);
  const shown = typeof value === "number" ? `${kind} ${value}` : text.length > 24 ? `${text.slice(0, 5)}…${text.slice(-12)}` : text;
  return h("span", { title: kind in KINDS && typeof value === "number" ? whois(kind, value) : text, style: { "white-space": "nowrap" } }, reference(kind, value, shown));
}

/** The category of the ledger that a value of `category` or `stage` is, for its colour. */
function categoryOf(kind, value) {
  if (kind === "category") return NAMES.has(value) ? value : null;
  if (kind !== "stage") return null;
  return ["work", "wait", "overhead"].map((name) => `${name}.${value}`).concat(value).find((name) => NAMES.has(name)) || null;
}

function coloured(kind, value) {
  const category = categoryOf(kind, value);
  return h("span", { style: { "white-space": "nowrap" } }, chip(colour(category)), kind === "category" ? categoryName(category) : value);
}

function byTable(members) {
  const names = Object.keys(members[0].by), columns = [], rows = new Map();
  for (const figure of members) {
    const key = JSON.stringify(Object.values(figure.by)), is = definition(figure);
    if (!columns.includes(is.id)) columns.push(is.id);
    if (!rows.has(key)) rows.set(key, new Map());
    rows.get(key).set(is.id, figure);
  }
  const used = columns.filter((id) => [...rows.values()].some((row) => row.get(id) && row.get(id).value !== null));
  const missing = columns.filter((id) => !used.includes(id));
  if (!used.length) return listed([[readable(beginning(columns[0])), `unknown: ${members[0].why}`]]);
  const make = (from, to) => [...rows].slice(from, to).map(([key, row]) => h("tr", { "data-about": `${names[0]}:${JSON.parse(key)[0]}` },
    JSON.parse(key).map((value, at) => h("th", { scope: "row" }, names[at] in KINDS || LINKED.includes(names[at]) ? named(names[at], value) : categoryOf(names[at], value) ? coloured(names[at], value) : value)),
    used.map((id) => valueCell(row.get(id), used.length + names.length, rows.size > 4))));
  const titles = new Map(members.map((figure) => [definition(figure).id, definition(figure)]));
  const body = h("tbody", {}, make(0, SHOWN));
  const more = rows.size > SHOWN && h("button", { type: "button", class: "plain", on: { click: () => { body.append(...make(SHOWN, rows.size)); more.remove(); } } }, `show all ${whole(rows.size)}`);
  return h("div", {}, h("div", { class: "scroll" }, h("table", {}, h("thead", {}, h("tr", {}, names.map((name) => h("th", { scope: "col" }, readable(name))),
    used.map((id) => h("th", { scope: "col", class: "number", title: titles.get(id).meaning }, titles.get(id).title)))), body)), more || null,
  missing.length ? h("p", { class: "quiet small", style: { "margin-top": "6px" } }, `Not known: ${missing.map((id) => titles.get(id).title).join(", ")}.`) : null);
}

function restTable(rest) {
  const known = rest.filter((figure) => figure.value !== null);
  const rows = known.map((figure) => {
    const is = definition(figure);
    return h("tr", { "data-about": `figure:${is.id}` }, h("th", { scope: "row" }, /^(mean|count|longest|shortest|\d+ % quantile)$/.test(is.title) ? `${readable(ending(beginning(is.id)))}: ${is.title}` : is.title),
      valueCell(figure, 3), h("td", { class: "quiet small wide-only" }, is.meaning.split(/[:(]/)[0].trim()));
  });
  return known.length ? h("div", { class: "scroll" }, h("table", { class: "rest" }, h("tbody", {}, rows))) : null;
}

function figuresOf(chapter, brief) {
  const { spread, rest, by } = grouped(chapter.figures);
  const unknown = [...spread.filter(([, members]) => members.every((figure) => figure.value === null)).map(([, [first]]) => first), ...rest.filter((figure) => figure.value === null)];
  return [
    spread.length ? spreadTable(chapter, spread) : null,
    rest.length ? restTable(rest) : null,
    ...(brief ? [] : by.map(([, members]) => h("div", { style: { "margin-top": "14px" } }, byTable(members)))),
    unknown.length ? later(`${unknown.length} more are unknown`, () => listed(unknown.map((figure) => [h("code", {}, definition(figure).id), figure.why]))) : null,
  ];
}
