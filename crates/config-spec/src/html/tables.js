// The tables of options and numbers, and the filter by class.
const figureOf = (option, part) => option.keeps[part];
function classCell({ class: name }) {
  if (name === "none") return "-";
  const swatch = element("i");
  swatch.style.background = `var(--${COLOURS[name]})`;
  return element("span", { className: "class" }, swatch, name);
}

const nameColumn = { name: "option", isText: true, order: ({ name }) => name, show: (option) => element("span", {}, itemLink(option), ...badge(option)) };
const count = (name, title, of) => ({ name, title, order: (option) => of(option) ?? -1, show: (option) => (of(option) === undefined || of(option) === null ? "?" : human(of(option))) });
const optionColumns = [
  nameColumn,
  ...(hasClasses ? [{ name: "class", title: "the use of its code in the traces", isText: true, order: ({ class: name }) => String(CLASSES.indexOf(name)), show: classCell }] : []),
  count("text", "code that stays in memory only because of it", (option) => figureOf(option, 0)),
  count("data", "data that stays in memory only because of it", (option) => figureOf(option, 1) + figureOf(option, 2)),
  count("init", "code and data that are freed after boot", (option) => figureOf(option, 3)),
  ...(options.some(({ after }) => after) ? [count("after", "text and data that are left after shrinking", ({ after }) => after && sum(after.slice(0, 3)))] : []),
  count("with", "other options that Kconfig turns off with it", (option) => option.with?.length),
  count("objects", "objects that the kernel lacks without it", (option) => option.objects.length),
  count("rebuilds", "other objects that a build compiles again", (option) => option.rebuilds),
  { name: "prompt", isText: true, order: ({ prompt }) => prompt, show: ({ prompt }) => prompt },
];
const dataOf = (option) => ({ option: option.name });
const rowsOf = (caption, columns, entries, sortedBy) => new SortedTable(caption, columns, entries, { choose: (option) => explorer.select(option), data: dataOf, sortedBy });
const optionTable = rowsOf("Options that can be set to n", optionColumns, options, hasClasses ? 2 : 1);
optionTable.filter(bringsSomething);

const numberTable = numbers.length
  ? rowsOf("Numbers that set the size of a variable; a smaller value is a trade that you decide", [
      nameColumn,
      { name: "variable", isText: true, order: ({ variable }) => variable, show: ({ variable }) => variable },
      { name: "bytes", title: "bytes that the variable holds", order: ({ bytes }) => bytes, show: ({ bytes }) => human(bytes) },
      { name: "now", order: ({ built }) => Number(built), show: ({ built }) => built },
      { name: "smaller", order: ({ smaller }) => Number(smaller ?? -1), show: ({ smaller }) => smaller ?? "-" },
      { name: "why not", isText: true, order: ({ why }) => why ?? "", show: ({ why }) => why ?? "" },
    ], numbers, 2)
  : null;

// The entries of the filter: options by class, proposed ones, and those without code.
const wantedOf = {
  all: bringsSomething,
  proposed: ({ name }) => isProposed.has(name),
  nothing: (option) => !bringsSomething(option),
};
for (const name of CLASSES) wantedOf[name] = (option) => option.class === name && bringsSomething(option);
const choices = [
  ["all", "all", null],
  ...(isProposed.size ? [["proposed", "proposed", null]] : []),
  ...(hasClasses ? CLASSES.map((name) => [name === "none" ? "no class" : name, name, COLOURS[name]]) : []),
  ["bring nothing", "nothing", null],
];
const classFilter = filters(
  choices.filter(([, value]) => value === "all" || options.some(wantedOf[value])).map(([label, value, colour]) => [`${label} ${human(options.filter(wantedOf[value]).length)}`, value, colour]),
  "Options by class",
  (value) => {
    press(classFilter, value);
    optionTable.filter(wantedOf[value]);
    const byClass = objects.filter((object) => object.class === value);
    const lit = value === "proposed" ? options.filter(wantedOf[value]).flatMap(nodesOf) : byClass.map((object) => nodeOf.get(object));
    explorer.light(value === "all" || value === "nothing" ? null : lit);
  },
);
press(classFilter, "all");

function drawTables() {
  const area = areaOf("tables");
  if (advice?.summary) area.append(element("p", { className: "summary", id: "summary", textContent: `Proposed: ${advice.summary}.` }));
  area.append(classFilter, optionTable.made);
  if (numberTable) area.append(numberTable.made);
  if (advice?.kept.length) {
    const entries = advice.kept.map(([name, reason]) => element("span", {}, optionOf.has(name) ? itemLink(optionOf.get(name)) : name, `: ${reason}`));
    const list = longList(`Not proposed, although each could be alone: ${human(entries.length)}`, entries, { kept: "" });
    list.className = "kept";
    area.append(list);
  }
  if (survey.objects.unplaced.length) {
    const list = longList(`Objects without a place in the Makefiles: ${human(survey.objects.unplaced.length)}`, survey.objects.unplaced, { unplaced: "" });
    list.className = "kept";
    area.append(list);
  }
}
