/* What is known of the step and of the thing that the address selects. */
const closed = (part) => link({ ...position, [part]: "", time: "" }, h("span", { class: "plain", title: "close" }, "×"));

function showSelection() {
  const cards = [position.step && stepCard(position.step), position.select && thingCard(position.select)].filter(Boolean);
  document.getElementById("selection").replaceChildren(...cards);
}

/** The part of a card that lists things, with how many more there are. */
function several(name, items, most = 12) {
  return items.length ? [name, h("span", {}, items.slice(0, most).map((item, at) => [at ? "; " : "", item]), items.length > most && ` … and ${whole(items.length - most)} more`)] : null;
}

const causeLink = (cause) => link({ section: "overview", select: `cause:${page.causes.indexOf(cause)}` }, cause.title);
const barrierText = (row) => [`${categoryName(`wait.${row.barrier}`)}, ${short(row.gpu_s)} ${about("GPU-s")}, for `, lastOne(row)];
const barriers = () => (page.ledger ? page.ledger.worst : []);

function stepCard(name) {
  const members = stepsAt(name);
  if (!members.length) return card(`Step ${name}`, "not in this recording", closed("step"));
  const every = allSteps(), [first] = members, last = members[members.length - 1];
  const ids = new Set(members.map((step) => step[0]));
  const beside = (at, text, title) => (every[at] ? h("a", { href: address({ ...position, step: stepName(every[at][0], every[at][1]), time: "", select: "" }), title }, text) : null);
  const title = members.length === 1 ? `Step ${first[1]}` : `Steps ${first[1]} to ${last[1]}`;
  const trajectories = Object.entries(page.who.trajectory || {}).filter(([, trajectory]) => members.some((step) => step[1] === trajectory.step));
  const waits = barriers().filter((row) => ids.has(row.step_id));
  const made = card(title, page.timeline ? `${seconds((last[3] - first[2]) / 1e6)}, from ${moment(first[2] / 1e6, 0.1)} to ${moment(last[3] / 1e6, 0.1)}` : "",
    [beside(every.indexOf(first) - 1, "◀", "step before"), beside(every.indexOf(last) + 1, "▶", "next step"),
      page.timeline && position.section !== "timeline" && link({ ...position, section: "timeline" }, "timeline"),
      page.ledger && position.section !== "ledger" && link({ ...position, section: "ledger", time: "" }, "ledger"), closed("step")],
    stepBar(first[1], last[1]),
    listed([
      several("causes", (page.causes || []).filter((cause) => ((cause.evidence.step || [[]])[0]).some((id) => ids.has(id))).map(causeLink)),
      several("longest waits", waits.filter((row) => row.gpu_s > 0.01 * waits[0].gpu_s).map((row) => h("span", {}, barrierText(row))), 5),
      several("trajectories named", trajectories.map(([id]) => reference("trajectory", Number(id), whois("trajectory", Number(id)).replace(/^step \d+, /, ""))), 6),
    ]));
  made.classList.add("chosen");
  return made;
}

/** Where the time of a step went: that of its bar in the chart of steps. */
function stepBar(first, last) {
  if (!page.ledger) return null;
  const { bars, categories } = page.ledger;
  const at = bars.first.findIndex((number, index) => number <= first && bars.last[index] >= first);
  if (at < 0) return null;
  const gpu_s = categories.map((_, index) => bars.cells[index].slice(at, at + 1 + bars.first.slice(at + 1).filter((number) => number <= last).length).reduce((sum, value) => sum + value, 0));
  const total = gpu_s.reduce((sum, value) => sum + value, 0);
  return total ? h("div", {}, shareBar(gpu_s, total), bars.together > 1 && h("p", { class: "quiet small" }, `together with ${barName(bars, at)}`)) : null;
}

function thingCard(select) {
  const [kind, ...rest] = select.split(":"), text = rest.join(":");
  if (["cause", "figure", "series", "category"].includes(kind)) return null;
  const value = /^\d+$/.test(text) && !["function", "tool"].includes(kind) ? Number(text) : text;
  const named = (where) => where[kind] === value, known = (page.who[kind] || {})[value];
  const figures = page.chapters.flatMap((chapter) => chapter.figures.filter((figure) => figure.value !== null && figure.by && named(figure.by)).map((figure) => [chapter, figure]));
  const causes = (page.causes || []).filter((cause) => named(cause.where) || ((cause.evidence[kind] || [[]])[0]).includes(value));
  const waits = barriers().filter((row) => (kind === "trajectory" ? row.trajectory_id === value : kind === "function" ? row.last_kind === "reward" && row.name === value
    : kind === "tool" ? row.last_kind === "tool" && row.name === value : row[kind] === value));
  const made = card(`${kind.replace(/_/g, " ")} ${kind === "trajectory" ? "" : text}`.trim(), known ? whois(kind, value) : "", closed("select"), listed([
    known && kind === "trajectory" && known.prompt !== undefined && ["lengths", `${whole(known.prompt)} prompt tokens, ${whole(known.response || 0)} response tokens`],
    known && known.step !== undefined && ["step", link(toStep(known.step), `step ${known.step}`)],
    several("causes", causes.map(causeLink)),
    several("waited for", waits.map((row) => h("span", {}, row.step_id === null ? "" : [reference("step", row.step_id), ": "], barrierText(row)))),
    several("metrics", figures.map(([chapter, figure]) => {
      const others = Object.entries(figure.by).filter(([name]) => name !== kind).map(([, other]) => `, ${other}`).join("");
      return h("span", {}, link({ section: chapter.name, select: `figure:${definition(figure).id}` }, `${definition(figure).title}${others}`), ` ${valueText(figure)}`);
    })),
    !known && !causes.length && !waits.length && !figures.length && ["known", "nothing more on this page"],
  ]));
  made.classList.add("chosen");
  return made;
}
