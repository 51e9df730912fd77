/* What is unknown, what was lost, and what is drawn. */
function drawnNotes() {
  const { timeline, ledger } = page, notes = [];
  if (!ledger) return notes;
  if (ledger.bars.together > 1) notes.push(`Charts by step show ${whole(ledger.bars.first.length)} bars for ${whole(ledger.steps)} steps: each is the sum of ${ledger.bars.together} steps that follow one another.`);
  if (ledger.map.together > 1) notes.push(about(`Each line of the map of waiting is ${ledger.map.together} GPUs: it shows the one that waited least.`));
  if (timeline.gpus.length < timeline.of) {
    const { named, ends, even } = timeline.why;
    notes.push(about(`The timeline draws ${whole(timeline.gpus.length)} of ${whole(timeline.of)} GPUs: ${named} that causes name, ${ends} that waited least or most, and ${even} evenly spaced.`));
  }
  if (timeline.exact_steps !== null) notes.push(`The timeline draws ${whole(timeline.exact_steps)} of ${whole(ledger.steps)} steps interval by interval: those that causes name, the longest, the first, the last, one of median length, and others evenly spaced. Of the rest it draws the shares of each thousandth of the run.`);
  if (timeline.readings.length) notes.push(`Readings of GPUs are drawn as means of ${whole(timeline.reading_pieces)} pieces of the run.`);
  return notes;
}

function notesPanel() {
  const noted = page.chapters.filter((chapter) => chapter.notes.length);
  const unknown = page.chapters.flatMap((chapter) => chapter.figures.filter((figure) => figure.value === null).map((figure) => [chapter.title, figure]));
  const reasons = new Map();
  for (const [title, figure] of unknown) {
    const key = `${title}\n${figure.why}`;
    reasons.set(key, [...(reasons.get(key) || []), figure]);
  }
  const list = (items) => h("ul", { class: "notes" }, items.map((item) => h("li", { class: "note" }, item)));
  const drawn = drawnNotes();
  return [
    card("About this recording", "", null, page.notes.length ? list(page.notes) : h("p", { class: "quiet" }, "No notes.")),
    page.lost.length ? card("Lost", "rows known to be missing: metrics are of the others", null, table(["Why", ["Rows", "number"]], page.lost.map(([why, rows]) => [h("code", {}, why), [whole(rows), "number"]]))) : null,
    noted.length ? card("About the sections", "", null, h("dl", { class: "facts-of" }, noted.map((chapter) => [h("dt", {}, chapter.title), h("dd", {}, list(chapter.notes))]))) : null,
    reasons.size ? card("Unknown for this source", "", null, h("div", { class: "scroll tall", tabindex: "0", role: "region", "aria-label": "what is unknown" }, table(["Section", "Why", "Metrics"],
      [...reasons].map(([key, figures]) => [key.split("\n")[0], figures[0].why, h("span", { class: "small quiet" }, `${[...new Set(figures.map((figure) => page.definitions[figure.is][0]))].slice(0, 6).join(", ")}${figures.length > 6 ? " …" : ""}`)])))) : null,
    card("What is drawn", "", null, list(["Every number counts everything that was recorded. Only pictures show a part.", ...drawn])),
    card("About this file", "", null, list(["It stands alone: it loads nothing and sends nothing, and its policy forbids it to.", "It holds no prompt and no response. It does hold names of hosts, functions and tools as they were recorded."])),
  ];
}
