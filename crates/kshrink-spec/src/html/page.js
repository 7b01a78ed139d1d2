// Ties the parts together.
const view = { mode: "both", withInit: false };

function describe(node) {
  const bytes = [`${human(node.before)} bytes before`, `${human(node.memory)} now`];
  if (node.frozen) bytes.push(`${human(node.frozen)} frozen`);
  return bytes.join(", ");
}

function title() {
  const titles = { both: "Largest, before and after", before: "Largest before", after: "Largest now", opaque: "Most opaque code" };
  return titles[view.mode] ?? `Most bytes removed by ${steps[view.mode].name}`;
}

const explorer = new Explorer({
  root,
  parts: PARTS,
  describe,
  title,
  nodesOf: (item) => [nodeOf.get(item)],
  addressOf,
  itemAt: (address) => contents.items[address.slice(1)],
  showItem,
  showNode,
  searched: contents.items,
  namesOf: (item) => item[NAMES],
  bytesOf: (item) => item[BEFORE],
});
const zoom = (node) => explorer.zoom(node);
const select = (item) => explorer.select(item);

function setMode(mode) {
  view.mode = mode;
  measure(view.mode, view.withInit);
  for (const button of document.querySelectorAll("#modes button, .passes button")) {
    button.ariaPressed = String(button.dataset.mode === String(mode));
  }
  explorer.redraw();
}

function modeButton(mode, text) {
  const button = element("button", { type: "button", textContent: text, data: { mode: String(mode) } });
  button.addEventListener("click", () => setMode(mode));
  return button;
}

areaOf("input").textContent = report.input;
document.title = `Kernel report: ${report.input}`;
areaOf("modes").append(modeButton("both", "before and after"), modeButton("before", "before"), modeButton("after", "now"), modeButton("opaque", "opaque"));
areaOf("switches").append(
  checkbox("init", "init memory too", false, (isOn) => {
    view.withInit = isOn;
    setMode(view.mode);
  }),
);

drawFigures();
drawTables();
setMode("both");
explorer.start();
