"use strict";
// Data, elements and figures.
const read = (id) => JSON.parse(document.getElementById(id).textContent);
const areaOf = (id) => document.getElementById(id);

function element(tag, properties = {}, ...children) {
  const made = document.createElement(tag);
  const { data, ...others } = properties;
  Object.assign(made, others);
  Object.assign(made.dataset, data ?? {});
  made.append(...children);
  return made;
}

const human = (number) => number.toLocaleString("en-US");
const sum = (numbers) => numbers.reduce((a, b) => a + b, 0);
const percent = (before, after) => {
  if (!before) return "";
  const change = (100 * (after - before)) / before;
  return `${change < 0 ? "−" : change > 0 ? "+" : ""}${Math.abs(change).toFixed(1)}\u00a0%`;
};
const share = (part, whole) => (whole ? `${((100 * part) / whole).toFixed(1)}\u00a0%` : "");

// Figures with a name, a value, and a note. `data` marks a figure for tests.
function figures(...rows) {
  const list = element("dl", { className: "figures" });
  for (const [name, value, note, data] of rows) {
    list.append(
      element("div", { data }, element("dt", { textContent: name }), element("dd", {}, value, " ", element("small", { textContent: note ?? "" }))),
    );
  }
  return list;
}

// A link within the page. Addresses let the browser go back and forth between items.
const link = (href, text, title = "") => element("a", { className: "link", href, textContent: text, title });

// A list that shows its title, and all entries on demand.
function longList(title, entries, data) {
  const list = element("ul", { className: "names" });
  const made = element("details", { data }, element("summary", { textContent: title }), list);
  made.addEventListener("toggle", () => made.open && !list.children.length && list.append(...entries.map((entry) => element("li", {}, entry))), { once: true });
  return made;
}

function checkbox(id, label, isOn, changed) {
  const box = element("input", { type: "checkbox", id, checked: isOn });
  box.addEventListener("change", () => changed(box.checked));
  return element("label", { className: "check" }, box, ` ${label}`);
}
