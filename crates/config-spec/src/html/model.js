// The options, the objects, and the tree of directories and objects.
const survey = read("survey");
const details = read("details");

// Bytes of an object are text, data, zeroed data, and init.
const MEMORY = [["text", "text"], ["data", "data"], ["zeroed data", "bss"], ["init", "init"]];
const sizes = ({ text, data, bss, init }) => [text, data, bss, init];

// The classes of options; of several options with an object, the first class here is the class of the object: if an idle
// option has it, nothing of it ran.
const CLASSES = ["idle", "init-only", "hooks-only", "used", "none"];
const COLOURS = { idle: "idle", "init-only": "init-only", "hooks-only": "hooks-only", used: "used", none: "unclear" };
const FIXED = "no option";

const { advice } = details;
const isProposed = new Set(advice?.off ?? []);
const isValue = new Set(advice?.values ?? []);

const objects = details.objects.map(([name, bytes, gates]) => ({ name, bytes, gates, options: [], parts: [] }));
const objectOf = new Map(objects.map((object) => [object.name, object]));

// Options that can be turned off.
const options = survey.options.map((row, number) => {
  const { title, lines, lists, parts } = details.options[number];
  const option = { ...row, title, lines, lists, class: row.class ?? "none", isNumber: false };
  option.keeps = sizes(row.keeps);
  option.after = row.after && sizes(row.after);
  option.bytes = sum(option.keeps.slice(0, 3));
  option.objects = row.objects.map(({ object }) => objectOf.get(object)).filter(Boolean);
  option.parts = parts.map(([object, bytes]) => ({ object: objectOf.get(object), bytes })).filter(({ object }) => object);
  option.objects.forEach((object) => object.options.push(option));
  option.parts.forEach(({ object, bytes }) => object.parts.push({ option, bytes }));
  return option;
});
const bringsSomething = (option) => option.objects.length > 0 || option.parts.length > 0;

// Options that set the size of a variable.
const numbers = details.numbers.map((number) => ({ ...number, isNumber: true, objects: [], parts: [] }));

const optionOf = new Map([...numbers, ...options].map((option) => [option.name, option]));
const hasClasses = options.some(({ class: name }) => name !== "none");
for (const object of objects) {
  object.class = CLASSES.find((name) => object.options.some((option) => option.class === name)) ?? FIXED;
}

const root = newRoot("kernel");
const nodeOf = new Map();
for (const object of objects) {
  const path = object.name.split("/");
  const directory = path.slice(0, -1).reduce((node, name) => child(node, name), root);
  nodeOf.set(object, child(directory, path[path.length - 1], object));
}
const isObject = (item) => objectOf.get(item.name) === item;
const nodesOf = (item) => (isObject(item) ? [nodeOf.get(item)] : [...item.objects, ...item.parts.map(({ object }) => object)].map((object) => nodeOf.get(object)));

const addressOf = (item) => `#${isObject(item) ? "object" : "option"}/${encodeURIComponent(item.name)}`;
const itemOf = new Map([...objects, ...optionOf.values()].map((item) => [addressOf(item), item]));

// The colours of the map: by the class of an object, or by its kinds of memory.
const BY_CLASS = hasClasses
  ? [...CLASSES.map((name) => [name === "none" ? "no class" : name, COLOURS[name]]), [FIXED, null]]
  : [["an option", "option"], [FIXED, null]];
function measure(mode) {
  const parts = mode === "class" ? BY_CLASS : MEMORY;
  sumTree(root, parts.length, ["bytes", "count"], (node) => {
    const { bytes, class: name } = node.item;
    node.bytes = sum(bytes);
    node.count = 1;
    if (mode === "memory") node.parts = [...bytes];
    else if (hasClasses) node.parts[name === FIXED ? CLASSES.length : CLASSES.indexOf(name)] = node.bytes;
    else node.parts[name === FIXED ? 1 : 0] = node.bytes;
  });
  return parts;
}
