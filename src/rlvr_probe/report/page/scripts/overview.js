/* The first screen: where the time went, and why. */
function fact(name, value) {
  return value === undefined || value === null ? null : h("span", {}, name ? `${name} ` : "", h("b", {}, value));
}

function facts() {
  const { run, ledger } = page;
  const framework = [run.framework, run.framework_version].filter(Boolean).join(" ");
  return [
    fact("", framework || (run.kind === "workload" ? "PolyTrace workload" : undefined)), fact("", run.algorithm), fact("engine", run.engine),
    fact("", ledger ? ledger.count : undefined), fact("ranks with a model", ledger ? undefined : run.accelerators), fact("nodes", run.hosts > 1 ? whole(run.hosts) : undefined), fact("steps", run.steps ? whole(run.steps) : undefined),
    fact("", ledger ? seconds(ledger.wall_s) : undefined), fact("trajectories", run.trajectories ? whole(run.trajectories) : undefined),
    run.asynchronous ? fact("", "asynchronous") : null, fact(run.kind === "workload" ? "workload" : "run", run.run || page.source),
  ];
}

function strip() {
  const { ledger } = page;
  const total = gpuTotal();
  const sums = new Map();
  ledger.categories.forEach(([name], at) => sums.set(family(name), (sums.get(family(name)) || 0) + ledger.gpu_s[at]));
  const box = (name, value, quiet, fill, meaning) => h("div", { title: meaning }, h("dt", {}, fill && chip(fill), h("span", {}, name)), h("dd", { style: { margin: "0" } }, value, quiet && h("small", {}, ` ${quiet}`)));
  const slots = figureOf("occupancy.mean"), rate = figureOf("ledger.token_rate");
  return h("dl", { class: "strip" },
    box(about("Time of GPUs"), gpuNumber(total), gpuUnit()[1]),
    [...sums].filter(([name, value]) => ["work", "wait", "unaccounted"].includes(name) || value / total >= 0.005)
      .map(([name, value]) => box(familyName(name), percent(value / total), null, colour(FAMILY_COLOURS[name] || name))),
    slots && slots.value !== null && box("Decode slots in use", percent(slots.value), null, null, definition(slots).meaning),
    rate && rate.value !== null && box("Response tokens", short(rate.value), about("per GPU-s"), null, definition(rate).meaning));
}

function figureOf(id) {
  for (const chapter of page.chapters) for (const figure of chapter.figures) if (page.definitions[figure.is][0] === id) return figure;
  return null;
}

function overviewPanel() {
  const { ledger } = page;
  if (!ledger) return [noLedger(), page.lengths ? lengthsCard() : null, ...chapterLinks()];
  return [
    strip(),
    h("div", { class: "two" },
      card(about("Where GPU time went"), about("each ns of each GPU is in one row"), null, runBar(ledger), h("div", { style: { height: "8px" } }), ledgerTable(ledger, false)),
      causesCard() || ledgerBySteps(ledger, 260)),
    causesCard() ? ledgerBySteps(ledger, 190) : null,
  ];
}

function noLedger() {
  return card("Where GPU time went", "", null, h("p", { class: "note" }, page.run.kind === "workload"
    ? "A workload has lengths, and durations of calls, but no clock and no GPUs: ledger, timeline and causes are omitted. Its other sections follow."
    : ["No training step was recorded. ", h("code", {}, "rlvr-probe show"), " shows what this recording holds, ", h("code", {}, "rlvr-probe doctor"), " checks an installation."]),
  page.notes.length ? h("ul", { class: "notes", style: { "margin-top": "8px" } }, page.notes.map((note) => h("li", { class: "note" }, note))) : null);
}

/** Figures of the first `count` distributions. */
function firstFew(figures, count) {
  const prefix = (figure) => beginning(page.definitions[figure.is][0]);
  const first = [...new Set(figures.map(prefix))].slice(0, count);
  return figures.filter((figure) => first.includes(prefix(figure)) && COLUMNS.includes(ending(page.definitions[figure.is][0])));
}

/** Of a source without a ledger, the few figures that say most of it. */
function chapterLinks() {
  return page.chapters.filter((chapter) => chapter.name !== "ledger" && chapter.figures.some((figure) => figure.value !== null)).map((chapter) => card(chapter.title, "", null,
    figuresOf({ ...chapter, figures: firstFew(chapter.figures.filter((figure) => figure.value !== null && !figure.by), 3) }, true)));
}
