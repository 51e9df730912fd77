/* What is behind a number: its meaning, its query, and the ids that it comes from. */
const KINDS = { step: "steps", trajectory: "trajectories", process: "processes", device: "devices", batch: "batches", rank: "ranks" };

/** An id of the recording, as an engineer of the run would say it. */
function whois(kind, id) {
  const known = (page.who[kind] || {})[id];
  if (!known) return `${kind} ${id}`;
  if (kind === "step") return `step ${known.number}${known.attempt ? `, attempt ${known.attempt}` : ""}`;
  if (kind === "trajectory") {
    const parts = [known.step !== undefined && `step ${known.step}`, `group ${known.group}`, `sample ${known.sample}`, known.engine !== undefined && `engine ${known.engine}`];
    const lengths = known.response !== undefined ? ` (${whole(known.response)} tokens)` : "";
    return `${parts.filter(Boolean).join(", ")}${lengths}`;
  }
  if (kind === "process") return [known.rank !== undefined && `rank ${known.rank}`, known.role, known.host, known.pid && `pid ${known.pid}`].filter(Boolean).join(", ") || `process ${known.key}`;
  if (kind === "device") return [known.model, known.uuid, known.host].filter(Boolean).join(", ");
  return `${kind} ${id}`;
}

function evidenceRows(evidence) {
  return Object.entries(evidence || {}).map(([kind, [ids, count]]) => [
    KINDS[kind] || kind,
    h("span", {}, ids.map((id, at) => [at ? "; " : "", h("span", { title: `${kind} id ${id}` }, reference(kind, id))]),
      count > ids.length && ` … of ${whole(count)}`),
  ]);
}

function listed(rows) {
  return h("dl", { class: "facts-of" }, rows.filter((row) => row && row[1] !== undefined && row[1] !== null && row[1] !== "").map(([name, value]) => [h("dt", {}, name), h("dd", {}, value)]));
}

const sql = (text) => h("pre", { tabindex: "0", role: "region", "aria-label": "query" }, text);

function explained(figure) {
  const is = definition(figure);
  return h("div", {}, listed([
    ["metric", h("code", {}, is.id)],
    ["meaning", is.meaning],
    figure.by && ["of", Object.entries(figure.by).map(([name, value]) => `${name} ${value}`).join(", ")],
    ["value", figure.value === null ? `unknown: ${figure.why}` : `${figure.value}${is.unit && is.unit !== "1" && is.unit !== "share" ? ` ${is.unit}` : ""}`],
    figure.low !== undefined && figure.high !== undefined && ["95 % interval", `${figure.low} to ${figure.high}`],
    ["unit", is.unit === "share" ? "1 (a share, 0..1)" : is.unit === "1" ? "1 (a ratio or a count)" : is.unit],
    is.inputs && ["tables read", h("code", {}, is.inputs)],
    ...evidenceRows(figure.evidence),
  ]), figure.query !== undefined && later("query", () => sql(page.queries[figure.query])));
}

function definition(figure) {
  const [id, title, meaning, unit, inputs] = page.definitions[figure.is];
  return { id, title, meaning, unit, inputs };
}

/** A number that opens a row below its own with what is behind it. */
function opened(figure, text, columns) {
  const button = h("button", { type: "button", class: "cell", "aria-expanded": "false", title: definition(figure).meaning }, text);
  button.addEventListener("click", () => {
    const row = button.closest("tr"), next = row.nextElementSibling;
    const mine = button.getAttribute("aria-expanded") === "true";
    row.querySelectorAll("button.cell").forEach((button) => button.setAttribute("aria-expanded", "false"));
    if (next && next.classList.contains("detail")) next.remove();
    if (mine) return;
    button.setAttribute("aria-expanded", "true");
    row.after(h("tr", { class: "detail" }, h("td", { colspan: columns }, explained(figure))));
  });
  return button;
}
