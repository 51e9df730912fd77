/* Where the reader is: section, step, selection, search and window of time. All of it is in the address. */
const PARTS = ["step", "select", "q", "time"];
const position = { section: "overview" };

/** The address of a position; parts that it lacks are empty. */
function address(to) {
  const parts = PARTS.filter((name) => to[name]).map((name) => `${name}=${encodeURIComponent(to[name])}`);
  return `#${to.section}${parts.length ? `?${parts.join("&")}` : ""}`;
}

/** The position that an address names; null for one that names no section. */
function positionAt(hash) {
  const [section, text] = hash.replace(/^#/, "").split("?");
  if (!panels.some(([name]) => name === section)) return null;
  const parts = new URLSearchParams(text || "");
  return { section, ...Object.fromEntries(PARTS.map((name) => [name, parts.get(name) || ""])) };
}

const link = (to, ...children) => h("a", { href: address(to) }, ...children);

/** Go there, as a new entry of the history or in place of the one that is shown. */
function navigate(to, { replace = false } = {}) {
  const hash = address(to);
  try {
    if (replace || hash === location.hash) history.replaceState(null, "", hash); else history.pushState(null, "", hash);
  } catch {
    // A browser that denies it to files follows a plain link.
    if (replace) location.replace(hash); else location.hash = hash;
  }
  arrive(!replace);
}

/** Change parts of the address of what is shown already. */
function amend(parts) {
  Object.assign(position, parts);
  try { history.replaceState(null, "", address(position)); } catch { /* what is shown stays right */ }
}

/** Show what the address names; `moved` if the reader came by a link and not by Back. */
function arrive(moved) {
  const to = positionAt(location.hash);
  if (!to) return;
  Object.assign(position, to);
  showSearch();
  showSelection();
  show(to.section);
  if (shownTimeline && to.section === "timeline") shownTimeline.place(to);
  const marked = markSelected(to.select);
  if (!moved) return;
  if (marked && !document.getElementById("selection").childElementCount) marked.scrollIntoView({ block: "center" });
  else scrollTo(0, Math.min(scrollY, tabs.offsetTop));
}

/** Everything in the open section that is about the selection stands out; the first of it. */
function markSelected(select) {
  let first = null;
  for (const node of main.querySelectorAll("[data-about]")) {
    const marked = Boolean(select) && node.dataset.about === select;
    node.classList.toggle("selected", marked);
    if (marked && !first && node.closest("[role=tabpanel]:not([hidden])")) first = node;
  }
  return first;
}

document.addEventListener("click", (event) => {
  const anchor = event.target instanceof Element && event.target.closest("a[href^='#']");
  const to = anchor && positionAt(anchor.getAttribute("href"));
  if (!to || event.button || event.ctrlKey || event.metaKey || event.shiftKey || event.altKey) return;
  event.preventDefault();
  navigate(to);
});
addEventListener("hashchange", () => { if (positionAt(location.hash) && location.hash !== address(position)) arrive(false); });

/** Steps in the order of their start: [step_id, number, from, to], times in µs; of a workload without times. */
const allSteps = () => (page.timeline ? page.timeline.steps : Object.entries(page.who.step || {}).map(([id, step]) => [Number(id), step.number, 0, 0]));

/** What the address calls a step: its number, and its id where several attempts have the number. */
function stepName(id, number) {
  return allSteps().filter((step) => step[1] === number).length > 1 ? `${number}.${id}` : String(number);
}

/** The steps that `12`, `5-8` or `12.417` in the address mean; of one number in several attempts the last. */
function stepsAt(name) {
  const [, first, last, id] = /^(\d+)(?:-(\d+))?(?:\.(\d+))?$/.exec(name || "") || [];
  if (first === undefined) return [];
  if (id !== undefined) return allSteps().filter((step) => step[0] === Number(id));
  const range = allSteps().filter((step) => step[1] >= Number(first) && step[1] <= Number(last || first));
  return last === undefined ? range.slice(-1) : range;
}

const stepSection = () => (page.timeline ? "timeline" : "overview");
const toStep = (name) => ({ section: stepSection(), step: String(name) });
const toBar = (bars, at) => toStep(bars.first[at] === bars.last[at] ? bars.first[at] : `${bars.first[at]}-${bars.last[at]}`);

/** Where a thing of the recording is shown: a step in the timeline, others in the section that has its metrics. */
function whereIs(kind, value) {
  if (kind === "step") {
    const step = (page.who.step || {})[value] || {};
    return step.number === undefined ? null : toStep(stepName(value, step.number));
  }
  const select = `${kind}:${value}`;
  if (kind === "trajectory") {
    const { step } = (page.who.trajectory || {})[value] || {};
    return step === undefined || step === null ? { section: "lengths", select } : { ...toStep(step), select };
  }
  const section = page.chapters.find((chapter) => chapter.figures.some((figure) => figure.by && figure.by[kind] === value && figure.value !== null));
  return { section: section ? section.name : stepSection(), select };
}

/** A name that leads to what is known of it. */
function reference(kind, value, text) {
  const to = whereIs(kind, value);
  return to && panels.some(([name]) => name === to.section) ? link(to, text === undefined ? whois(kind, value) : text) : h("span", {}, text === undefined ? whois(kind, value) : text);
}
