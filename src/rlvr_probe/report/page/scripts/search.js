/* Search over all that the page names. */
const MOST_RESULTS = 60;
let entries = null;

/** Everything that can be found: what kind it is, what it is called, and where it is. */
function searchEntries() {
  if (entries) return entries;
  const by = new Map(), figures = new Map();
  for (const chapter of page.chapters) for (const figure of chapter.figures) {
    const is = definition(figure);
    figures.set(is.id, ["metric", `${is.title} (${is.id})`, { section: chapter.name, select: `figure:${is.id}` }]);
    for (const [kind, value] of Object.entries(figure.by || {}))
      if (!["step", "trajectory", "process", "device", "category", "stage"].includes(kind)) by.set(`${kind}:${value}`, [kind, String(value), whereIs(kind, value)]);
  }
  entries = [
    ...panels.map(([name, title]) => ["section", title, { section: name }]),
    ...(page.causes || []).map((cause, at) => ["cause", cause.title, { section: "overview", select: `cause:${at}` }]),
    ...allSteps().map((step) => ["step", String(step[1]), toStep(stepName(step[0], step[1]))]),
    ...by.values(),
    ...["trajectory", "process", "device"].flatMap((kind) => Object.keys(page.who[kind] || {}).map((id) => [kind, `${whois(kind, Number(id))}${kind === "trajectory" ? `, id ${id}` : ""}`, whereIs(kind, Number(id))])),
    ...(page.ledger ? page.ledger.categories.map(([name], at) => ["category", categoryName(name), mostOf(at)]) : []),
    ...figures.values(),
    ...page.chapters.flatMap((chapter) => chapter.series.filter((series) => series.rows.length).map((series) => ["chart", `${titled(series)} (${series.id})`, { section: chapter.name, select: `series:${series.id}` }])),
  ].filter(([, , to]) => to && panels.some(([name]) => name === to.section));
  return entries;
}

/** Entries that have every word; first those of that name. */
function matching(text) {
  const words = text.toLowerCase().split(/\s+/).filter(Boolean);
  const hits = searchEntries().map((entry) => [entry, `${entry[0]} ${entry[1]}`.toLowerCase()]).filter(([, whole]) => words.every((word) => whole.includes(word)));
  const exact = words.join(" ");
  const rank = ([entry, whole]) => (entry[1].toLowerCase() === exact || whole === exact ? 0 : words.every((word) => whole.split(/[^\p{L}\p{N}]+/u).includes(word)) ? 1 : 2);
  return hits.map((hit) => [rank(hit), hit[0]]).sort((a, b) => a[0] - b[0]).map(([, entry]) => entry);
}

function showSearch() {
  const field = document.getElementById("search"), box = document.getElementById("results");
  if (field.value !== position.q) field.value = position.q || "";
  box.replaceChildren();
  if (!position.q) return;
  const hits = matching(position.q);
  box.append(card(`Found: ${whole(hits.length)}`, hits.length > MOST_RESULTS ? `the first ${MOST_RESULTS}` : "", closed("q"),
    hits.length ? h("ul", { class: "hits" }, hits.slice(0, MOST_RESULTS).map(([kind, text, to]) => h("li", {}, h("span", { class: "quiet small" }, kind), " ", link(to, text))))
      : h("p", { class: "quiet" }, "Trajectories are found if a cause or a metric names them; others are in the recording.")));
}

function buildSearch() {
  const field = h("input", { type: "search", id: "search", placeholder: "Search: step, function, trajectory, rank", "aria-label": "search the page", autocomplete: "off", spellcheck: "false" });
  field.addEventListener("input", () => {
    const q = field.value.trim() ? field.value : "";
    if (Boolean(q) === Boolean(position.q)) { amend({ q }); showSearch(); } else navigate({ ...position, q });
  });
  field.addEventListener("keydown", (event) => {
    const hit = event.key === "Enter" && document.querySelector("#results .hits a");
    if (hit) { event.preventDefault(); hit.click(); }
  });
  addEventListener("keydown", (event) => {
    if (event.key !== "/" || event.ctrlKey || event.metaKey || event.target instanceof HTMLInputElement) return;
    event.preventDefault();
    field.focus();
  });
  document.getElementById("buttons").before(field);
}
