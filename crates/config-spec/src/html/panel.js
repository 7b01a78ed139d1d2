// The content of the panel: an option with its facts, an object with its options, or the figures of a directory.
const itemLink = (item, text = item.name) => link(addressOf(item), text);
const badge = ({ name }) => {
  if (isProposed.has(name)) return [element("span", { className: "badge", textContent: "proposed" })];
  return isValue.has(name) ? [element("span", { className: "badge values", textContent: "smaller value" })] : [];
};
const total = (bytes) => human(sum(bytes));

function factList(lines) {
  return element("dl", { className: "facts" }, ...lines.flatMap(([key, value]) => [element("dt", { textContent: key }), element("dd", { textContent: value, data: { fact: key } })]));
}

function objectEntry(object) {
  const gates = object.gates.join(" || ");
  return element("span", {}, itemLink(object), ` ${total(object.bytes)}`, element("span", { className: "gates", textContent: gates }));
}

// A list of `--explain`; long lists are closed.
function factLists(option) {
  const entry = (text) => (optionOf.has(text) ? itemLink(optionOf.get(text)) : objectOf.has(text) ? itemLink(objectOf.get(text)) : text);
  const others = option.lists.filter(([key]) => key !== "objects");
  return others.map(([key, texts]) => {
    const entries = texts.map((number) => entry(details.texts[number]));
    const list = longList(`${key}: ${human(entries.length)}`, entries, { list: key });
    list.open = key === "ran" && entries.length <= LISTED;
    return list;
  });
}

function showOption(option) {
  const head = [
    element("p", { className: "kind", textContent: option.isNumber ? "number that sets the size of a variable" : option.class === "none" ? "option" : `option, ${option.class}` }),
    element("h2", { textContent: option.name, id: "selected" }),
    ...badge(option),
    element("p", { className: "faint prompt", textContent: option.title.replace(`${option.name}: `, "") }),
  ];
  if (option.isNumber) {
    const rows = [["now", option.built, `${human(option.bytes)} bytes`, { figure: "built" }], ["smaller", option.smaller ?? "none", "", { figure: "smaller" }]];
    return [...head, figures(...rows), factList(option.lines), ...factLists(option)];
  }
  const [text, data, bss, init] = option.keeps;
  const rows = [["text", human(text), "", { figure: "text" }], ["data", human(data + bss), "", { figure: "data" }], ["init", human(init), "", { figure: "init" }]];
  if (option.after) rows.push(["after shrinking", total(option.after.slice(0, 3)), "bytes", { figure: "after" }]);
  const lines = option.lines.filter(([key]) => key !== "contents" && key !== "keeps" && key !== "after" && key !== "parts");
  const parts = [...head, figures(...rows), factList(lines)];
  const largest = [...option.objects].sort((a, b) => sum(b.bytes) - sum(a.bytes));
  if (largest.length) {
    const list = longList(`objects: ${human(largest.length)}`, largest.map(objectEntry), { list: "objects" });
    list.open = largest.length <= LISTED || !isNarrow();
    parts.push(list);
  }
  if (option.parts.length) {
    const entries = option.parts.map(({ object, bytes }) => element("span", {}, itemLink(object), ` ${total(bytes)}`));
    const list = longList(`parts of other objects: ${human(entries.length)}`, entries, { list: "parts" });
    list.open = true;
    parts.push(list);
  }
  return [...parts, ...factLists(option)];
}

function showObject(object) {
  const rows = MEMORY.map(([label], part) => [label, human(object.bytes[part]), "", { figure: label }]).filter((_, part) => object.bytes[part]);
  const parts = [
    element("p", { className: "kind", textContent: `object${hasClasses ? `, ${object.class === "none" ? "no class" : object.class}` : ""}` }),
    element("h2", { textContent: object.name, id: "selected" }),
    figures(...rows),
    factList(object.gates.map((gate, number) => [number ? "or" : "linked if", gate])),
  ];
  const list = (title, id, entries) => {
    if (entries.length) parts.push(element("h3", { textContent: title }), element("ul", { className: "largest", id }, ...entries));
  };
  const byBytes = [...object.options].sort((a, b) => b.bytes - a.bytes);
  list("Removed without any of", "options", byBytes.map((option) => element("li", {}, element("span", {}, itemLink(option), ...badge(option)), element("span", { textContent: option.class === "none" ? "" : option.class }))));
  list("Has parts of", "parts", object.parts.map(({ option, bytes }) => element("li", {}, element("span", {}, itemLink(option), ...badge(option)), element("span", { textContent: total(bytes) }))));
  if (!object.options.length) parts.push(element("p", { className: "hint", textContent: object.gates.length ? "No option that can be turned off removes it." : "It has no place in the Makefiles, and counts for no option." }));
  return parts;
}

function showNode(node) {
  return [
    element("p", { className: "kind", textContent: node === root ? "whole kernel" : "directory" }),
    element("h2", { textContent: fullName(node), id: "selected" }),
    figures(["objects", human(node.count), `${human(node.bytes)} bytes`, { figure: "objects" }]),
    element("p", { className: "hint", textContent: "Choose an option in the table to see its objects and reasons." }),
  ];
}
