// The details of what is selected: an item with its chain, or a directory with what is in it.
const panel = document.getElementById("panel");
const selected = { item: null };
const LISTED = 12;

function figures(...rows) {
  const list = element("dl", { className: "figures" });
  for (const [name, value, note, data] of rows) {
    list.append(
      element("div", { data }, element("dt", { textContent: name }), element("dd", {}, value, " ", element("small", { textContent: note ?? "" }))),
    );
  }
  return list;
}

// A link to an item, whose number is in the address, so that the browser goes back and forth between items.
function itemLink(item, text = nameOf(item)) {
  return element("a", { className: "link", href: addressOf(item), textContent: text, title: place(item) });
}

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
  panel.replaceChildren(...parts);
}

function showNode(node) {
  const rows = [["before", human(node.before), "bytes", { figure: "before" }], ["now", human(node.memory), percent(node.before, node.memory), { figure: "after" }]];
  if (node.frozen) rows.push(["frozen", human(node.frozen), "bytes", { figure: "frozen" }]);
  const list = element("ul", { className: "largest" });
  const children = [...node.children.values()].sort((a, b) => b.value - a.value).filter((below) => below.value > 0);
  for (const below of children.slice(0, LISTED)) {
    const name = element("button", { type: "button", className: "link", textContent: below.name });
    name.addEventListener("click", () => enter(below));
    const bar = element("i", { className: "bar" });
    bar.style.setProperty("--fill", fill(below, { width: 2, height: 1 }));
    bar.style.width = `${(100 * below.value) / children[0].value}%`;
    list.append(element("li", {}, name, element("span", { textContent: human(below.value) }), bar));
  }
  panel.replaceChildren(
    element("p", { className: "kind", textContent: node === root ? "whole kernel" : [...node.children.values()].some((below) => below.item) ? "object" : "directory" }),
    element("h2", { textContent: fullName(node), id: "selected" }),
    figures(...rows),
    element("p", { className: "hint", textContent: "Choose a function or a variable to see why it is kept." }),
    element("h3", { textContent: view.title() }),
    list,
  );
}

function showFound(query) {
  const wanted = query.toLowerCase();
  const rank = (item) => {
    const names = item[NAMES].map((name) => name.toLowerCase());
    if (names.includes(wanted)) return 0;
    return names.some((name) => name.startsWith(wanted)) ? 1 : names.some((name) => name.includes(wanted)) ? 2 : 3;
  };
  const found = contents.items.map((item) => [rank(item), item]).filter(([rank]) => rank < 3);
  found.sort((a, b) => a[0] - b[0] || b[1][BEFORE] - a[1][BEFORE]);
  const list = element("ul", { className: "largest", id: "found" });
  for (const [, item] of found.slice(0, 3 * LISTED)) {
    list.append(element("li", {}, itemLink(item, item[NAMES].find((name) => name.toLowerCase().includes(wanted))), element("span", { textContent: human(item[BEFORE]) })));
  }
  panel.replaceChildren(
    element("p", { className: "kind", textContent: "search" }),
    element("h2", { textContent: found.length ? `${human(found.length)} with “${query}”` : `Nothing is called “${query}”` }),
    list,
  );
}
