// The content of the panel: an item with its chain, or the figures of a directory.
const itemLink = (item, text = nameOf(item)) => link(addressOf(item), text, place(item));

function chainList(item) {
  const chain = chainOf(item);
  const list = element("ol", { className: "chain", id: "chain" });
  chain.forEach((link, index) => {
    const of = contents.items[link[LINK_ITEM]];
    const phrase = contents.phrases[link[LINK_PHRASE]];
    const name = of === item ? element("strong", { textContent: nameInChain(of) }) : itemLink(of, nameInChain(of));
    list.append(index ? element("li", {}, element("span", { textContent: `${phrase} ` }), name) : element("li", {}, name, element("span", { textContent: `, ${phrase}` })));
  });
  return list;
}

function itemTitle(item) {
  const names = item[NAMES];
  if (item[KIND] === UNNAMED) return nodeOf.get(item).name;
  return names.length ? names.slice(0, LISTED).join(", ") + (names.length > LISTED ? ", …" : "") : "Data without a name";
}

const KINDS = ["function", "opaque code", "data", "entry of a table", "parts without a name"];

function showItem(item) {
  const after = sum(item[AFTER].map(([, bytes]) => bytes));
  const [bytes, code, init] = item[RETAINED];
  const memory = item[AFTER].map(([memory, size]) => `${human(size)} ${CLASSES[memory]}`).join(", ");
  const parts = [
    element("p", { className: "kind", textContent: `${KINDS[item[KIND]]}, ${CLASSES[item[CLASS_BEFORE]]}` }),
    element("h2", { textContent: itemTitle(item), id: "selected" }),
    element("p", { className: "faint place", textContent: item[KIND] === UNNAMED && !item[NAMES].length ? contents.objects[item[OBJECT]] : nodeOf.get(item).parent.name === "(the link)" ? "" : place(item) }),
    figures(
      ["before", human(item[BEFORE]), "bytes", { figure: "before" }],
      ["now", human(after), after ? percent(item[BEFORE], after) : "removed", { figure: "after" }],
    ),
  ];
  if (item[AFTER].some(([memory]) => memory !== item[CLASS_BEFORE])) {
    parts.push(element("p", { textContent: `Now ${memory}.` }));
  }
  const removed = [...item[REMOVED]].sort(([, a], [, b]) => b - a).map(([step, size]) => `${steps[step].name} ${size > 0 ? "removed" : "added"} ${human(Math.abs(size))}`);
  if (removed.length) parts.push(element("p", { textContent: `${removed.join(", ")} bytes.` }));
  if (item[KIND] === CODE && item[PHRASE] !== null) {
    parts.push(element("p", { className: "note", textContent: `Opaque: ${contents.phrases[item[PHRASE]]}.` }));
  }
  if (item[LINK] !== null) {
    const note = [code ? `${human(code)} code` : "", init ? `${human(init)} init` : ""].filter(Boolean).join(", ");
    parts.push(
      figures(["keeps alive by itself", human(bytes), `bytes${note ? `, of it ${note}` : ""}`, { figure: "retained" }]),
      element("h3", { textContent: "Kept because" }),
      chainList(item),
    );
  } else if (!after) {
    parts.push(element("p", { textContent: "Nothing that is kept refers to it." }));
  }
  return parts;
}

function showNode(node) {
  const rows = [["before", human(node.before), "bytes", { figure: "before" }], ["now", human(node.memory), percent(node.before, node.memory), { figure: "after" }]];
  if (node.frozen) rows.push(["frozen", human(node.frozen), "bytes", { figure: "frozen" }]);
  return [
    element("p", { className: "kind", textContent: node === root ? "whole kernel" : [...node.children.values()].some((below) => below.item) ? "object" : "directory" }),
    element("h2", { textContent: fullName(node), id: "selected" }),
    figures(...rows),
    element("p", { className: "hint", textContent: "Choose a function or a variable to see why it is kept." }),
  ];
}
