/* Ranked causes, each with its size, what says so, and what would refute it. */
/** A cause, with links to the steps and to whom it names. */
function causeItem(cause, most, number) {
  const share = (gpu_s) => `${Math.max(0, Math.min(100, 100 * gpu_s / most))}%`;
  const range = cause.low !== null && cause.high !== null;
  const where = Object.entries(cause.where);
  const ids = (kind, most) => (cause.evidence[kind] || [[]])[0].slice(0, most).map((id) => reference(kind, id));
  const links = [...ids("step", 5), ...where.filter(([kind]) => LINKED.includes(kind) || kind === "rank").map(([kind, value]) => reference(kind, value, `${kind} ${value}`)), ...ids("trajectory", 2)];
  return h("li", { class: cause.natural ? "cause-item natural" : "cause-item", "data-about": `cause:${number}` },
    h("div", { class: "sizes" }, h("span", { class: "big" }, percent(cause.share)), h("b", {}, cause.kind.replace(/_/g, " ")),
      h("span", {}, `removing it would save ${gpuTime(cause.gpu_s)}`), range && h("span", { class: "interval" }, `(${gpuNumber(Math.max(0, cause.low))} to ${gpuNumber(cause.high)})`), cause.no_interval && h("span", { class: "interval" }, `(no interval: ${cause.no_interval})`),
      cause.natural && h("span", { class: "quiet small" }, "inherent to the workload")),
    h("div", { class: "whisker", "aria-hidden": "true" }, h("span", { class: "body", style: { width: share(cause.gpu_s) } }),
      range && h("span", { class: "range", style: { left: share(cause.low), width: `calc(${share(cause.high)} - ${share(cause.low)})` } })),
    h("p", { class: "what" }, cause.title),
    links.length ? h("p", { class: "links" }, h("span", { class: "quiet" }, "See: "), links.map((node, at) => [at ? ", " : "", node])) : null,
    h("p", {}, h("span", { class: "quiet" }, "What usually helps: "), cause.usually_helps),
    later("evidence, worst cases, what would refute it", () => h("div", {}, listed([
      ["where", where.map(([kind, value]) => `${kind.replace(/_/g, " ")} ${value}`).join(", ")],
      cause.worst.length && ["worst cases", h("ul", { class: "notes" }, cause.worst.map((text) => h("li", {}, text)))],
      ...evidenceRows(cause.evidence),
      ["refuted by", cause.refuted_by],
      ["confidence", typeof cause.confidence === "number"
        ? `${percent(cause.confidence)} of the judged recordings in which this was named first had it` : "not judged: no judged recording has this as its first cause"],
      cause.inputs.length && ["tables read", h("code", {}, cause.inputs.join(", "))],
    ]), page.queries[cause.query] && later("query", () => sql(page.queries[cause.query])))));
}

function causesCard() {
  const { causes } = page;
  if (causes === null) return null;
  const most = Math.max(...causes.map((cause) => Math.max(cause.gpu_s, cause.high || 0)), 1e-9);
  return card("Causes", causes.length ? about("GPU time that the run would not have needed without it") : "", null,
    causes.length ? h("ol", { class: "causes" }, causes.map((cause, number) => causeItem(cause, most, number)))
      : h("p", { class: "note" }, "No cause found: nothing costs more than the differences between the steps of this run explain. Every run waits for its longest responses."));
}
