/* Categories of the ledger: one colour each, in every chart. */
const NAMES = new Map([
  ["work.rollout", "rollout"], ["work.old_logprob", "old log-probs"], ["work.ref_logprob", "reference log-probs"],
  ["work.values", "values"], ["work.update_actor", "actor update"], ["work.update_critic", "critic update"],
  ["work.weight_sync", "weight sync"], ["work.other", "other work"],
  ["wait.rollout", "wait for rollout"], ["wait.reward", "wait for reward"], ["wait.update", "wait for update"], ["wait.refit", "wait for weight sync"],
  ["overhead.data", "data"], ["overhead.dispatch", "dispatch"], ["overhead.advantage", "advantages"], ["overhead.probe", "the probe"],
  ["bubble", "bubble"], ["eval", "evaluation"], ["checkpoint", "checkpoint"],
  ["discarded.filtered", "discarded: filtered"], ["discarded.surplus", "discarded: surplus"], ["discarded.stale", "discarded: stale"],
  ["discarded.truncated", "discarded: truncated"], ["discarded.redone", "discarded: redone"], ["unaccounted", "unaccounted"],
]);
const categoryName = (name) => NAMES.get(name) || name;
const family = (name) => name.split(".")[0];
const variable = (name) => `--k-${name.replace(/[._]/g, "-")}`;
const colour = (name) => `var(${variable(name)}, var(--k-work-other))`;
const chip = (fill) => h("span", { class: "chip", style: { background: fill }, "aria-hidden": "true" });

/** Colours as a canvas wants them, of the theme that is shown. */
function palette(names) {
  const style = getComputedStyle(document.documentElement);
  return names.map((name) => style.getPropertyValue(name).trim() || style.getPropertyValue("--k-work-other").trim());
}

const FAMILY_NAMES = {
  work: "Work", wait: "Waiting", bubble: "Bubbles", overhead: "Overhead", eval: "Evaluation",
  checkpoint: "Checkpoints", discarded: "Discarded work", unaccounted: "Unaccounted",
};
const FAMILY_COLOURS = {
  work: "work.rollout", wait: "wait.rollout", bubble: "bubble", overhead: "overhead.data", eval: "eval",
  checkpoint: "checkpoint", discarded: "discarded.filtered", unaccounted: "unaccounted",
};

/** Black or white, whichever is read better on a colour. */
function inkOn(fill) {
  const hex = fill.replace("#", "");
  const [r, g, b] = [0, 2, 4].map((at) => parseInt(hex.slice(at, at + 2), 16) / 255)
    .map((one) => (one <= 0.04045 ? one / 12.92 : ((one + 0.055) / 1.055) ** 2.4));
  return 0.2126 * r + 0.7152 * g + 0.0722 * b > 0.18 ? "#101418" : "#ffffff";
}
