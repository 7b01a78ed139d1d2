// Ties the parts together.
const view = {
  mode: "both",
  withInit: false,
  title() {
    const titles = { both: "Largest, before and after", before: "Largest before", after: "Largest now", opaque: "Most opaque code" };
    return titles[this.mode] ?? `Most bytes removed by ${steps[this.mode].name}`;
  },
};

function tell(node) {
  document.getElementById("status").textContent = `${fullName(node)}: ${describe(node)}`;
}

function drawPath() {
  const path = pathOf(shown.node);
  document.getElementById("path").replaceChildren(
    ...path.flatMap((node, index) => {
      const button = element("button", { type: "button", textContent: node.name, disabled: node === shown.node });
      button.addEventListener("click", () => zoom(node));
      return index ? [element("span", { textContent: "/" }), button] : [button];
    }),
  );
}

function zoom(node) {
  shown.node = node;
  selected.item = null;
  // No assignment to the hash: that would scroll to the top.
  history.replaceState(null, "", "#");
  drawPath();
  drawMap();
  showNode(node);
  tell(node);
}

const enter = (node) => (node.item ? select(node.item) : zoom(node));

function select(item) {
  selected.item = item;
  if (location.hash !== addressOf(item)) location.hash = addressOf(item);
  const parent = nodeOf.get(item).parent;
  if (!pathOf(parent).includes(shown.node)) {
    shown.node = parent;
    drawPath();
    drawMap();
  }
  mark();
  showItem(item);
  if (matchMedia("(max-width: 60rem)").matches) panel.scrollIntoView({ block: "start", behavior: "smooth" });
}

function setMode(mode) {
  view.mode = mode;
  measure(view.mode, view.withInit);
  for (const button of document.querySelectorAll("#modes button, .passes button")) {
    button.ariaPressed = String(button.dataset.mode === String(mode));
  }
  if (!shown.node.value) shown.node = root;
  drawPath();
  drawMap();
  if (selected.item) showItem(selected.item);
  else showNode(shown.node);
  tell(shown.node);
}

function modeButton(mode, text) {
  const button = element("button", { type: "button", textContent: text, data: { mode: String(mode) } });
  button.addEventListener("click", () => setMode(mode));
  return button;
}

function drawLegend() {
  const labels = ["text", "data", "init", "frozen", "removed"];
  const present = labels.filter((_, part) => shown.node.parts[part] > 0);
  const entry = (label) => element("span", {}, element("i", { className: label }), `${label} ${human(shown.node.parts[labels.indexOf(label)])}`);
  document.getElementById("legend").replaceChildren(...present.map(entry));
}

document.getElementById("input").textContent = report.input;
document.title = `Kernel report: ${report.input}`;
document.getElementById("modes").append(modeButton("both", "before and after"), modeButton("before", "before"), modeButton("after", "now"), modeButton("opaque", "opaque"));
document.getElementById("init").addEventListener("change", (event) => {
  view.withInit = event.target.checked;
  setMode(view.mode);
});
const query = document.getElementById("query");
query.addEventListener("input", () => (query.value.length > 1 ? showFound(query.value) : showNode(shown.node)));
document.getElementById("find").addEventListener("submit", (event) => {
  event.preventDefault();
  document.querySelector("#found a")?.click();
});
addEventListener("keydown", (event) => {
  if (event.key !== "Escape") return;
  if (selected.item) zoom(shown.node);
  else if (shown.node.parent) zoom(shown.node.parent);
});
function goToAddress() {
  const item = contents.items[location.hash.slice(1)];
  if (item && item !== selected.item) select(item);
}
addEventListener("hashchange", goToAddress);
new ResizeObserver(drawMap).observe(treemap);

drawFigures();
drawTables();
setMode("both");
goToAddress();
