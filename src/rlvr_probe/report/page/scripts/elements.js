/* Elements of the page. A text is only ever set as text: nothing of a recording is read as markup. */
const SVG = "http://www.w3.org/2000/svg";
const page = JSON.parse(document.getElementById("data").textContent);

function fill(node, props, children) {
  for (const [name, value] of Object.entries(props || {})) {
    if (value === undefined || value === null || value === false) continue;
    if (name === "on") for (const [event, act] of Object.entries(value)) node.addEventListener(event, act);
    else if (name === "style") for (const [key, to] of Object.entries(value)) node.style.setProperty(key, to);
    else node.setAttribute(name, value === true ? "" : String(value));
  }
  for (const child of children.flat(3)) {
    if (child === undefined || child === null || child === false) continue;
    node.append(child instanceof Node ? child : document.createTextNode(String(child)));
  }
  return node;
}

const h = (tag, props, ...children) => fill(document.createElement(tag), props, children);
const s = (tag, props, ...children) => fill(document.createElementNS(SVG, tag), props, children);

/** A card with a heading, a few quiet words beside it, and what is at its right end. */
function card(title, quiet, right, ...children) {
  return h("section", { class: "card" },
    h("header", {}, h("h3", {}, title), quiet && h("span", { class: "quiet" }, quiet),
      right && h("span", { class: "right tools" }, right)),
    ...children);
}

/** A disclosure whose content is made when it is first opened. */
function later(summary, make) {
  const node = h("details", {}, h("summary", {}, summary));
  const open = () => { if (node.childElementCount === 1) node.append(make()); };
  node.addEventListener("toggle", () => { if (node.open) open(); });
  return node;
}

/** Rows of a table: cells are texts, nodes, or [text, class]. */
function table(head, rows, props) {
  const cell = (tag, content) => Array.isArray(content) ? h(tag, { class: content[1] }, content[0]) : h(tag, {}, content);
  return h("table", props,
    head && h("thead", {}, h("tr", {}, head.map((heading) => {
      const made = cell("th", heading);
      made.setAttribute("scope", "col");
      return made;
    }))),
    h("tbody", {}, rows.map((row) => h("tr", {}, row.map((content) => cell("td", content))))));
}

/** Buttons of which one is pressed. */
function choice(label, options, chosen, pick) {
  const buttons = options.map(([value, text]) => h("button", {
    type: "button", class: "plain", "aria-pressed": String(value === chosen),
    on: { click: () => {
      buttons.forEach((button, at) => button.setAttribute("aria-pressed", String(options[at][0] === value)));
      pick(value);
    } },
  }, text));
  return h("span", { class: "joined", role: "group", "aria-label": label }, buttons);
}

/** Calls `draw` with the width of `box`, now that it is there and whenever it changes. */
function fitted(box, draw) {
  let width = 0;
  const again = () => {
    const now = Math.floor(box.clientWidth);
    if (now && now !== width) draw(width = now);
  };
  new ResizeObserver(again).observe(box);
  redraws.push(() => { if (width) draw(width); });
}

const redraws = [];
let printing = false, wasDark = false;
