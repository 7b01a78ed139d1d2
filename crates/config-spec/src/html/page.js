// Ties the parts together.
const explorer = new Explorer({
  root,
  parts: measure("class"),
  describe: (node) => (node.item ? `${human(node.bytes)} bytes${node.item.class === FIXED ? "" : `, ${node.item.options.map(({ name }) => name).slice(0, 4).join(", ")}`}` : `${human(node.bytes)} bytes in ${human(node.count)} objects`),
  title: () => "Largest",
  nodesOf,
  addressOf,
  itemAt: (address) => itemOf.get(address),
  showItem: (item) => (isObject(item) ? showObject(item) : showOption(item)),
  showNode,
  searched: [...options, ...numbers, ...objects],
  namesOf: (item) => (item.prompt ? [item.name, item.prompt] : [item.name]),
  bytesOf: (item) => (isObject(item) ? sum(item.bytes) : item.bytes),
  selected: (item) => {
    optionTable.mark(item);
    numberTable?.mark(item);
  },
});

function setMode(mode) {
  explorer.page.parts = measure(mode);
  for (const button of areaOf("modes").children) button.ariaPressed = String(button.dataset.mode === mode);
  explorer.redraw();
}
for (const [mode, text] of [["class", hasClasses ? "by class" : "by option"], ["memory", "by memory"]]) {
  const button = element("button", { type: "button", textContent: text, data: { mode } });
  button.addEventListener("click", () => setMode(mode));
  areaOf("modes").append(button);
}

areaOf("input").textContent = `Linux ${survey.kernel} — ${details.vmlinux}`;
document.title = `Configuration options: ${details.vmlinux}`;
const { all, objects: removed, parts: partly } = details.known;
const known = removed[0] + partly[0];
areaOf("figures").append(
  ...figures(
    ["options", human(options.filter(bringsSomething).length), "bring code or data", { figure: "options" }],
    ["text that an option removes", share(known, all[0]) || "0", `${human(known)} bytes`, { figure: "known", objects: removed[0], parts: partly[0], all: all[0] }],
    ...(advice ? [["proposed", human(isProposed.size + isValue.size), advice.keeps && isProposed.size ? `keep ${total(advice.keeps.slice(0, 3))} bytes` : "", { figure: "proposed" }]] : []),
  ).children,
);
drawTables();
setMode("class");
explorer.start();
