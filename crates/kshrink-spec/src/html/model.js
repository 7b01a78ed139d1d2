// The documents, the tree of directories, objects and items, and the sums over it.
const report = read("report");
const contents = read("contents");
const frozen = read("frozen");

// The fields of an item, of a link, and the kinds and classes of memory, as in contents.json.
const [KIND, NAMES, OBJECT, SECTION, CLASS_BEFORE, BEFORE, AFTER, REMOVED, LINK, RETAINED, PHRASE] = Array(11).keys();
const [LINK_ITEM, LINK_PHRASE, LINK_FROM] = Array(3).keys();
const [FUNCTION, CODE, DATA, TABLE_ENTRY, UNNAMED] = Array(5).keys();
const CLASSES = ["text", "data", "init text", "init data", "frozen text", "frozen data"];
const [, , INIT_TEXT, INIT_DATA, FROZEN_TEXT] = Array(5).keys();

// Bytes in a page of memory.
const PAGE_SIZE = 4096;

function place(item) {
  const object = contents.objects[item[OBJECT]];
  return object.startsWith("(") ? object : `${object}:${contents.sections[item[SECTION]]}`;
}

// The name of an item, as `--explain` prints it.
function nameInChain(item) {
  const names = item[NAMES];
  if (item[KIND] === FUNCTION) return names[0];
  if (item[KIND] === TABLE_ENTRY) return `an entry of ${place(item)} (${contents.phrases[item[PHRASE]]})`;
  if (!names.length) return place(item);
  return `${place(item)}, which holds ${names.length < 4 ? names.join(", ") : `${names.slice(0, 3).join(", ")}, …`}`;
}

// A short name.
function nameOf(item) {
  if (item[KIND] === UNNAMED) return `${contents.sections[item[SECTION]]}, without a name`;
  const names = item[NAMES];
  if (!names.length) return contents.sections[item[SECTION]];
  return names.length > 1 ? `${names[0]} and ${names.length - 1} more` : names[0];
}

const numbers = new Map(contents.items.map((item, number) => [item, number]));
const addressOf = (item) => (numbers.has(item) ? `#${numbers.get(item)}` : "#");

// The links of the chain that ends at an item, from the root; empty if nothing reaches it.
function chainOf(item) {
  const chain = [];
  for (let at = item[LINK]; at !== null && at >= 0; at = contents.links[at][LINK_FROM] - 1) {
    chain.unshift(contents.links[at]);
  }
  return chain;
}

const steps = contents.steps.map((name) => ({ name, removed: 0, added: 0 }));
for (const item of contents.items) {
  for (const [step, bytes] of item[REMOVED]) steps[step][bytes > 0 ? "removed" : "added"] += Math.abs(bytes);
}

// Bytes of an item by what became of them, each with its colour; removed parts are hatched.
const PARTS = [["text", "text"], ["data", "data"], ["init", "init"], ["frozen", "frozen"], ["removed", null]];
function partsOf(item, withInit) {
  const parts = [0, 0, 0, 0, 0];
  let after = 0;
  for (const [memory, bytes] of item[AFTER]) {
    after += bytes;
    parts[memory >= FROZEN_TEXT ? 3 : memory >= INIT_TEXT ? 2 : memory] += Math.max(0, bytes);
  }
  parts[4] = Math.max(0, item[BEFORE] - after);
  const wasInit = item[CLASS_BEFORE] === INIT_TEXT || item[CLASS_BEFORE] === INIT_DATA;
  if (wasInit && !withInit) parts[2] = parts[4] = 0;
  return parts;
}

// Bytes in memory now.
function memoryOf(item, withInit) {
  return sum(item[AFTER].filter(([memory]) => memory < (withInit ? FROZEN_TEXT : INIT_TEXT)).map(([, bytes]) => bytes));
}

function beforeOf(item, withInit) {
  const isInit = item[CLASS_BEFORE] === INIT_TEXT || item[CLASS_BEFORE] === INIT_DATA;
  return isInit && !withInit ? 0 : item[BEFORE];
}

const root = newRoot("kernel");

function directoryOf(object) {
  if (object.startsWith("(") || object.startsWith("kshrink")) return ["kshrink", object.replace(/^kshrink\//, "")];
  const member = object.match(/^(.*)\/[^/(]*\(([^)]*)\)$/);
  return (member ? `${member[1]}/${member[2]}` : object).split("/");
}

const nodeOf = new Map();
function addItem(item, path) {
  let node = root;
  for (const name of path) node = child(node, name);
  nodeOf.set(item, child(node, nameOf(item), item));
}

const paths = contents.objects.map(directoryOf);
for (const item of contents.items) addItem(item, paths[item[OBJECT]]);

// The link adds symbol tables and padding, and merges strings that are alike.
function addLink({ before, after }) {
  const classes = ["text", "data", "init_text", "init_data"];
  const packed = after.frozen?.packed ?? 0;
  const bootPages = PAGE_SIZE * (report.frozen?.boot_pages ?? 0);
  // Where the link merges more than it adds, the number is negative and has no area.
  const made = (name, memory, was, is) => {
    if (!was && !is) return;
    const item = [UNNAMED, [name], 0, 0, memory, was, is ? [[memory, is]] : [], [], null, [0, 0, 0], null];
    addItem(item, ["(the link)"]);
    nodeOf.get(item).name = name;
  };
  classes.forEach((field, memory) => {
    let [was, is] = [before[field], after[field]];
    for (const item of contents.items) {
      if (item[CLASS_BEFORE] === memory) was -= item[BEFORE];
      for (const [holds, bytes] of item[AFTER]) if (holds === memory) is -= bytes;
    }
    const own = { data: ["packed pages", packed], init_data: ["boot pages, not packed", bootPages] }[field];
    if (own) {
      made(own[0], memory, 0, own[1]);
      is -= own[1];
    }
    made(`${CLASSES[memory]}: padding, symbol table, tables of the build`, memory, was, is);
  });
}
if (report.sizes) addLink(report.sizes);

// Sets the sums of all nodes. `mode` is `both`, `before`, `after`, `opaque` or the number of a step.
function measure(mode, withInit) {
  sumTree(root, PARTS.length, ["before", "memory", "frozen"], (node) => {
    const { item } = node;
    const parts = partsOf(item, withInit);
    node.before = beforeOf(item, withInit);
    if (mode === "before") node.parts[item[CLASS_BEFORE] >= INIT_TEXT ? 2 : item[CLASS_BEFORE]] = Math.max(0, node.before);
    else if (mode === "both") node.parts = parts;
    else if (mode === "after") node.parts = [parts[0], parts[1], withInit ? parts[2] : 0, 0, 0];
    else if (mode === "opaque") node.parts = item[KIND] === CODE ? [...parts.slice(0, 4), 0] : node.parts;
    else node.parts[4] = Math.max(0, sum(item[REMOVED].filter(([step]) => step === mode).map(([, bytes]) => bytes)));
    node.memory = memoryOf(item, withInit);
    node.frozen = parts[3];
  });
}
