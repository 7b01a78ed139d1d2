"use strict";
// Shows what is on the page under the pointer or the keyboard's focus; a click, or Enter, keeps it.
const views = JSON.parse(document.getElementById("data").textContent);
const detail = document.getElementById("detail");
const cells = [...document.querySelectorAll(".page")];
const human = (figure) => figure.toLocaleString("en-US");
let kept = null;

function element(tag, text, name) {
  const made = document.createElement(tag);
  made.textContent = text;
  if (name) made.className = name;
  return made;
}

function show(cell) {
  const [view, section, number] = cell.dataset.page.split(".").map(Number);
  const [address, size, ran, functions] = views[view][section].pages[number];
  const list = document.createElement("ul");
  const byUse = [...functions].sort((a, b) => b[2] - a[2] || b[1] - a[1]);
  for (const [name, bytes, bytesRan] of byUse) {
    const item = element("li", "", bytesRan ? "" : "cold");
    const label = element("code", name);
    label.title = name;
    item.append(label, element("span", `${human(bytesRan)} of ${human(bytes)}`));
    list.append(item);
  }
  const heading = `${views[view][section].name} page 0x${address}: ${human(ran)} of ${human(size)} bytes ran`;
  detail.replaceChildren(element("h2", heading), list);
}

function keep(cell) {
  const again = kept === cell;
  kept?.setAttribute("aria-selected", "false");
  kept = again ? null : cell;
  kept?.setAttribute("aria-selected", "true");
  show(cell);
}

// One cell of each map is in the tab order; the arrows go on from there.
function focus(map, cell) {
  map.querySelector(".page[tabindex='0']").tabIndex = -1;
  cell.tabIndex = 0;
  cell.focus();
}

for (const map of document.querySelectorAll(".map")) {
  const own = [...map.querySelectorAll(".page")];
  const columns = Number(map.dataset.columns);
  const steps = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -columns, ArrowDown: columns };
  map.addEventListener("keydown", (event) => {
    const at = own.indexOf(event.target);
    if (at < 0) return;
    let to = null;
    if (event.key in steps) to = at + steps[event.key];
    else if (event.key === "Home") to = 0;
    else if (event.key === "End") to = own.length - 1;
    else if (event.key === "Enter" || event.key === " ") keep(event.target);
    else return;
    event.preventDefault();
    if (to !== null && own[to]) focus(map, own[to]);
  });
}

for (const cell of cells) {
  cell.addEventListener("pointerenter", () => kept ?? show(cell));
  cell.addEventListener("focus", () => kept ?? show(cell));
  cell.addEventListener("click", () => keep(cell));
}
addEventListener("keydown", (event) => {
  if (event.key === "Escape" && kept) keep(kept);
});

// To begin with, the emptiest page of the first view.
const first = document.querySelector("[data-emptiest]");
if (first) show(document.querySelector(`.page[data-page="${first.dataset.emptiest}"]`));
