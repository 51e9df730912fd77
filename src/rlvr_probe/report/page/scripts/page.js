/* Tabs, theme, printing. A panel is made when it is first shown. */
let shownTimeline = null;

const hasFigures = (chapter) => chapter.figures.some((figure) => figure.value !== null) || chapter.series.some((chart) => chart.rows.length);
const panels = [
  ["overview", "Overview", overviewPanel, true],
  page.ledger && ["ledger", "Ledger", () => [...ledgerPanel(), ...page.chapters.filter((chapter) => chapter.name === "ledger").flatMap(besides)], true],
  page.timeline && ["timeline", "Timeline", timelinePanel, true],
  ...page.chapters.filter((chapter) => chapter.name !== "ledger").map((chapter) => [chapter.name, chapter.title, () => chapterPanel(chapter), hasFigures(chapter)]),
  ["notes", "Notes", notesPanel, true],
].filter(Boolean);

const tabs = document.getElementById("tabs"), main = document.getElementById("main");
const made = new Map();

function make(name) {
  const node = document.getElementById(`panel-${name}`);
  if (made.has(name)) return node;
  const [, title, content] = panels.find((panel) => panel[0] === name);
  made.set(name, true);
  node.append(...(name === "overview" ? [] : [h("h2", {}, title)]), ...content().flat(2).filter(Boolean));
  return node;
}

function show(name) {
  hideTip();
  for (const [other] of panels) {
    const open = other === name, tab = document.getElementById(`tab-${other}`);
    tab.setAttribute("aria-selected", String(open));
    tab.tabIndex = open ? 0 : -1;
    document.getElementById(`panel-${other}`).hidden = !open;
    if (open) make(name);
  }
  // Only the row of tabs is scrolled, where it is a row.
  const tab = document.getElementById(`tab-${name}`);
  tabs.scrollLeft = Math.min(tab.offsetLeft - 8, Math.max(tabs.scrollLeft, tab.offsetLeft + tab.offsetWidth - tabs.clientWidth + 8));
}

function buildTabs() {
  panels.forEach(([name, title, , full]) => {
    tabs.append(h("button", { type: "button", role: "tab", id: `tab-${name}`, "aria-controls": `panel-${name}`, "aria-selected": "false", class: full ? "" : "empty", title: full ? null : "nothing recorded", on: { click: () => navigate({ ...position, section: name, q: "", time: "" }) } }, title, full ? null : h("span", { "aria-hidden": "true" }, "–")));
    main.append(h("div", { role: "tabpanel", id: `panel-${name}`, "aria-labelledby": `tab-${name}`, tabindex: "-1", hidden: true }));
  });
  tabs.addEventListener("keydown", (event) => {
    const names = panels.map((panel) => panel[0]), now = names.findIndex((name) => document.getElementById(`tab-${name}`) === document.activeElement);
    const to = { ArrowRight: now + 1, ArrowDown: now + 1, ArrowLeft: now - 1, ArrowUp: now - 1, Home: 0, End: names.length - 1 }[event.key];
    if (to === undefined) return;
    event.preventDefault();
    const name = names[(to + names.length) % names.length];
    navigate({ ...position, section: name, time: "" }, { replace: true });
    document.getElementById(`tab-${name}`).focus({ preventScroll: true });
  });
  const narrow = matchMedia("(max-width: 860px)");
  const turn = () => tabs.setAttribute("aria-orientation", narrow.matches ? "horizontal" : "vertical");
  narrow.addEventListener("change", turn);
  turn();
}

const systemDark = matchMedia("(prefers-color-scheme: dark)");
let wished = null;
try { wished = localStorage.getItem("rlvr-probe-theme"); } catch { /* a page from a file may not */ }

function dress() {
  document.documentElement.toggleAttribute("data-dark", wished ? wished === "dark" : systemDark.matches);
  redraws.forEach((draw) => draw());
}

function buildTheme() {
  const button = h("button", { type: "button", class: "plain", id: "theme" });
  const name = () => {
    const dark = document.documentElement.hasAttribute("data-dark");
    button.textContent = dark ? "Light" : "Dark";
    button.setAttribute("aria-label", `switch to ${dark ? "light" : "dark"} colours`);
  };
  button.addEventListener("click", () => {
    wished = document.documentElement.hasAttribute("data-dark") ? "light" : "dark";
    try { localStorage.setItem("rlvr-probe-theme", wished); } catch { /* a page from a file may not */ }
    dress();
    name();
  });
  systemDark.addEventListener("change", () => { dress(); name(); });
  document.getElementById("buttons").append(button);
  dress();
  name();
}

addEventListener("beforeprint", () => { printing = true; wasDark = document.documentElement.hasAttribute("data-dark"); document.documentElement.removeAttribute("data-dark"); panels.forEach(([name]) => make(name)); redraws.forEach((draw) => draw()); });
addEventListener("afterprint", () => { printing = false; document.documentElement.toggleAttribute("data-dark", wasDark); redraws.forEach((draw) => draw()); });

document.getElementById("facts").append(...facts().filter(Boolean));
if (page.causes && page.causes.some((cause) => !cause.natural && !cause.early)) document.getElementById("first-cause").classList.add("cause");
buildTheme();
buildSearch();
buildTabs();
if (positionAt(location.hash)) arrive(true); else navigate(position, { replace: true });
document.documentElement.setAttribute("data-ready", String(Math.round(performance.now())));
