/* Where the time of the GPUs went. */
function ledgerRows(ledger) {
  const total = gpuTotal();
  const byFamily = new Map();
  ledger.categories.forEach(([name, meaning], at) => {
    const group = byFamily.get(family(name)) || [];
    group.push({ name, meaning, at, gpu_s: ledger.gpu_s[at] });
    byFamily.set(family(name), group);
  });
  return { total, byFamily };
}

/** The step, or bar of steps, that has the most of a category. */
function mostOf(at) {
  const { bars } = page.ledger, values = bars.cells[at] || [];
  const most = values.reduce((best, value, bar) => (value > values[best] ? bar : best), 0);
  return values[most] ? toBar(bars, most) : { section: "ledger" };
}

/** All of the run in one bar, whose parts lead to the step that has the most of them. */
const runBar = (ledger) => shareBar(ledger.gpu_s, gpuTotal(), mostOf);

/** GPU time by category in one bar, parts that are large enough named in it. */
function shareBar(gpu_s, total, leads) {
  const { ledger } = page;
  const sentence = ledger.categories.map(([name], at) => [categoryName(name), gpu_s[at] / total]).filter(([, share]) => share >= 0.001).map(([name, share]) => `${name} ${percent(share)}`).join(", ");
  const bar = h("div", { class: "stack", role: "img", "aria-label": `${about("GPU time by category")}: ${sentence}` });
  const fit = (name, share, width) => {
    const room = share * width - 10, long = `${categoryName(name)} ${percent(share)}`;
    return room > long.length * 6.9 ? long : room > percent(share).length * 6.9 ? percent(share) : "";
  };
  const draw = (width) => {
    const fills = palette(ledger.categories.map(([name]) => variable(name)));
    bar.replaceChildren(...ledger.categories.map(([name], at) => {
      const share = gpu_s[at] / total;
      if (!share) return "";
      const part = h("span", { style: { "flex-grow": String(share), "flex-basis": "0", background: fills[at], color: inkOn(fills[at]) } },
        fit(name, share, width));
      part.addEventListener("pointermove", (event) => showTip(event.clientX, event.clientY, categoryName(name),
        [[null, about("GPU time"), gpuTime(gpu_s[at])], [null, "share", percent(share)]], `Time ${ledger.categories[at][1]}.${leads ? " A click shows the step with the most of it." : ""}`));
      part.addEventListener("pointerleave", hideTip);
      if (leads) { part.classList.add("leads"); part.addEventListener("click", () => navigate(leads(at))); }
      return part;
    }).filter(Boolean));
  };
  fitted(bar, draw);
  return bar;
}

function ledgerSentence(ledger) {
  const total = gpuTotal();
  return `${about("GPU time by category")}: ${ledger.categories.map(([name], at) => [categoryName(name), ledger.gpu_s[at] / total]).filter(([, share]) => share >= 0.001)
    .map(([name, share]) => `${name} ${percent(share)}`).join(", ")}`;
}

/** Families with their sums, and their parts; what is 0 is omitted, unaccounted never is. */
function ledgerTable(ledger, withMeaning) {
  const { total, byFamily } = ledgerRows(ledger);
  const most = Math.max(...ledger.gpu_s) / total;
  const row = (at, label, fill, gpu_s, meaning, kind) => h("tr", { class: kind },
    h("th", { scope: "row" }, h("span", { style: { display: "inline-flex", "align-items": "center" } }, chip(fill), gpu_s ? h("a", { href: address(mostOf(at)), title: "the step with the most of it", class: "bare" }, label) : h("span", {}, label))),
    h("td", { class: "number" }, gpuNumber(gpu_s)),
    h("td", { class: "number" }, percent(gpu_s / total)),
    h("td", { class: "wide-only", style: { width: withMeaning ? "110px" : "34%" } }, h("span", { class: "meter", "aria-hidden": "true" }, h("span", { style: { width: `${100 * gpu_s / total / most}%`, background: fill } }))),
    withMeaning && h("td", { class: "quiet small meaning" }, meaning));
  const rows = [];
  for (const [name, parts] of byFamily) {
    const sum = parts.reduce((total, part) => total + part.gpu_s, 0);
    if (!sum && name !== "unaccounted") continue;
    if (parts.length === 1) {
      rows.push(row(parts[0].at, categoryName(parts[0].name), colour(parts[0].name), sum, `time ${parts[0].meaning}`, sum ? "family" : "family zero"));
      continue;
    }
    rows.push(h("tr", { class: "family" }, h("th", { scope: "row" }, familyName(name)), h("td", { class: "number" }, gpuNumber(sum)),
      h("td", { class: "number" }, percent(sum / total)), h("td", { class: "wide-only" }), withMeaning && h("td", {})));
    // The first screen has no room for the parts of next to nothing.
    if (!withMeaning && sum < 0.005 * total) continue;
    for (const part of parts) if (part.gpu_s) rows.push(row(part.at, categoryName(part.name), colour(part.name), part.gpu_s, `time ${part.meaning}`, ""));
  }
  rows.push(h("tr", { class: "family" }, h("th", { scope: "row" }, "All"), h("td", { class: "number" }, gpuNumber(total)), h("td", { class: "number" }, "100 %"),
    h("td", { class: "wide-only" }), withMeaning && h("td", { class: "quiet small" }, `${ledger.count} x ${seconds(ledger.wall_s)}: ${about("every ns of every GPU is in one row")}`)));
  return h("div", { class: "scroll" }, h("table", {}, h("thead", {}, h("tr", {}, h("th", { scope: "col" }, about("Time of GPUs")), h("th", { scope: "col", class: "number unit" }, gpuUnit()[1]),
    h("th", { scope: "col", class: "number" }, "Share"), h("th", { class: "wide-only" }), withMeaning && h("th", { scope: "col" }, "What it is"))), h("tbody", {}, rows)));
}

const barName = (bars, at) => (bars.first[at] === bars.last[at] ? `step ${bars.first[at]}` : `steps ${bars.first[at]} to ${bars.last[at]}`);

function ledgerBySteps(ledger, height) {
  const { bars } = ledger;
  const unit = gpuUnit();
  const place = h("div", {});
  const parts = ledger.categories.map(([name], at) => ({ name, fill: colour(name), values: bars.cells[at].map((ns) => ns / unit[0]) })).filter((part) => part.values.some(Boolean));
  const draw = (share) => place.replaceChildren(stackedColumns({
    labels: bars.first, parts, share, height, xName: bars.together > 1 ? `step (${bars.together} to a bar)` : "step",
    yText: share ? percent : short, yName: share ? about("share of GPU time") : about(`GPU time, ${unit[1]}`), go: (at) => navigate(toBar(bars, at)), label: `${about("GPU time by category and step")}. ${ledgerSentence(ledger)}`,
    tell: (at) => {
      const sum = parts.reduce((total, part) => total + part.values[at], 0);
      return {
        title: `${barName(bars, at)}: ${short(sum)} ${unit[1]}`,
        rows: parts.filter((part) => part.values[at]).sort((a, b) => b.values[at] - a.values[at]).slice(0, 9).map((part) => [part.fill, categoryName(part.name), percent(part.values[at] / sum)]),
      };
    },
  }));
  draw(false);
  return card("By step", `${unit[1]}${bars.together > 1 ? `; each bar is the sum of ${bars.together} steps` : ""}`, choice("scale of the bars", [[false, about("GPU time")], [true, "share"]], false, draw), place);
}

/** Which GPU waited when: a slow one is a pale line, since others wait for it. */
function waitMap(ledger) {
  const { map, bars } = ledger, rows = map.cells.length, columns = bars.first.length;
  const gpus = (row) => { const [first, last] = map.ends[row]; return map.together === 1 ? gpuName(first) : `${gpuName(first)} to ${gpuName(last)}`; };
  const tall = Math.max(44, Math.min(420, rows * (rows < 20 ? 18 : rows < 60 ? 8 : 4)));
  const most = bars.first.map((_, column) => map.cells.reduce((soFar, line) => Math.max(soFar, line[column]), 1));
  const place = h("div", {});
  const draw = (against) => place.replaceChildren(heatMap({
      rows, columns, tall, label: about("share of time waited by GPU and step"),
      value: (row, column) => (map.cells[row][column] < 0 ? null : map.cells[row][column] / (against ? most[column] : 100)),
      go: (row, column) => navigate(toBar(bars, column)),
      tell: (row, column) => (map.cells[row][column] < 0 ? null : { title: `${gpus(row)}, ${barName(bars, column)}`, rows: [[null, "waited", `${map.cells[row][column]} %`]] }),
      left: tall / rows >= 14 ? map.cells.map((_, row) => gpus(row)) : [gpus(0), rows > 1 ? gpus(rows - 1) : ""], bottom: [barName(bars, 0), barName(bars, columns - 1)],
    }));
  draw(false);
  return card(about("Waiting by GPU and step"), about(`a slow GPU is a pale line, as the others wait for it${map.together > 1 ? `; of ${map.together} GPUs in a line the one that waited least` : ""}`),
    [h("span", { class: "quiet small" }, "0 %", h("span", { class: "ramp" }), "100 %"), choice("what darkness means", [[false, "of its time"], [true, "of the step's most"]], false, draw)], place);
}

/** A stage by the name of its category. */
const stageName = (stage) => NAMES.get(`work.${stage}`) || NAMES.get(stage) || stage.replace(/_/g, " ");
const LAST = { turn: "a turn", tool: "a tool", reward: "a reward function", rollout: "a rank's rollout" };

function lastOne(row) {
  const kind = { reward: "function", tool: "tool" }[row.last_kind];
  const who = [row.name && (kind ? reference(kind, row.name, h("code", {}, row.name)) : h("code", {}, row.name)), row.engine !== null && `engine ${row.engine}`, row.rank !== null && `rank ${row.rank}`].filter(Boolean);
  return h("span", {}, row.last_kind ? LAST[row.last_kind] || stageName(row.last_kind) : "unknown", who.map((part) => [", ", part]));
}

function whoCameLast(ledger) {
  if (!ledger.who.length) return null;
  const total = gpuTotal();
  const head = ["What for", "Who came last", ["Times", "number"], [gpuUnit()[1], "number"], ["Share", "number"], "Worst case"];
  const rows = ledger.who.map((row) => [categoryName(`wait.${row.barrier}`), lastOne(row), [whole(row.times), "number"], [gpuNumber(row.gpu_s), "number"], [percent(row.gpu_s / total), "number"],
    row.worst_trajectory !== null ? reference("trajectory", row.worst_trajectory) : row.worst_step !== null ? reference("step", row.worst_step) : ""]);
  const worst = ledger.worst.map((row) => [row.step_id === null ? "" : reference("step", row.step_id), categoryName(`wait.${row.barrier}`), [gpuNumber(row.gpu_s), "number"], lastOne(row),
    row.trajectory_id !== null ? h("span", {}, reference("trajectory", row.trajectory_id), row.turn !== null && `, turn ${row.turn}`) : row.process !== null ? reference("process", row.process) : ""]);
  return card("Who came last", "every barrier has a last one, in a healthy run too; a name that repeats stands out", null,
    h("div", { class: "scroll tall", tabindex: "0", role: "region", "aria-label": "who came last" }, table(head, rows)),
    later(`the ${whole(worst.length)} most expensive barriers, one by one`, () => h("div", { class: "scroll tall" }, table(["Step", "What for", [gpuUnit()[1], "number"], "Who came last", "Which"], worst))),
    later("query", () => sql(ledger.who_query)));
}

function ledgerPanel() {
  const { ledger } = page;
  return [
    card(about("GPU time of the run"), about("each GPU does one thing at a time"), null, runBar(ledger), h("div", { style: { height: "10px" } }), ledgerTable(ledger, true), later("query", () => sql(ledger.query))),
    ledgerBySteps(ledger, 260), waitMap(ledger), whoCameLast(ledger),
  ];
}
