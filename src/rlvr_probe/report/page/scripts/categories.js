/* Categories of the ledger: one colour each, in every chart. */
const NAMES = new Map(Object.entries(page.categories));
const categoryName = (name) => NAMES.get(name) || name;
const familyName = (name) => page.families[name] || name;
const family = (name) => name.split(".")[0];
const variable = (name) => `--k-${name.replace(/[._]/g, "-")}`;
const colour = (name) => `var(${variable(name)}, var(--k-work-other))`;
const chip = (fill) => h("span", { class: "chip", style: { background: fill }, "aria-hidden": "true" });

/** Colours as a canvas wants them, of the theme that is shown. */
function palette(names) {
  const style = getComputedStyle(document.documentElement);
  return names.map((name) => style.getPropertyValue(name).trim() || style.getPropertyValue("--k-work-other").trim());
}

const FAMILY_COLOURS = {
  work: "work.rollout", wait: "wait.rollout", bubble: "bubble", overhead: "overhead.data", eval: "eval",
  checkpoint: "checkpoint", discarded: "discarded.filtered", unaccounted: "unaccounted",
};

/** Black or white, whichever is read better on a colour. */
function inkOn(fill) {
  const hex = fill.replace("#", "");
  const [r, g, b] = [0, 2, 4].map((at) => parseInt(hex.slice(at, at + 2), 16) / 255)
    .map((channel) => (channel <= 0.04045 ? channel / 12.92 : ((channel + 0.055) / 1.055) ** 2.4));
  return 0.2126 * r + 0.7152 * g + 0.0722 * b > 0.18 ? "#101418" : "#ffffff";
}
