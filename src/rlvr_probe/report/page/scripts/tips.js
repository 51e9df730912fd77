/* What is shown beside the pointer. */
const tip = document.getElementById("tip");

function showTip(x, y, title, rows, quiet) {
  tip.replaceChildren(h("b", {}, title),
    rows.length ? table(null, rows.map(([mark, name, value]) => [h("span", {}, mark && chip(mark), name), value])) : "",
    quiet ? h("div", { class: "quiet" }, quiet) : "");
  tip.hidden = false;
  const box = tip.getBoundingClientRect();
  const left = x + 14 + box.width > innerWidth - 6 ? x - 14 - box.width : x + 14;
  tip.style.left = `${Math.max(6, left)}px`;
  tip.style.top = `${Math.max(6, Math.min(y + 14, innerHeight - box.height - 6))}px`;
}

const hideTip = () => { tip.hidden = true; };
addEventListener("scroll", hideTip, { passive: true });
addEventListener("keydown", (event) => { if (event.key === "Escape") hideTip(); });
