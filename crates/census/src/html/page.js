// The panel, the table of owners, and what ties the parts together.
const view = { withFree: false, withReserved: true };
const kib = (bytes) => human(Math.round(bytes / 1024));

function describe(node) {
  const figures = [`${human(node.bytes)} bytes`];
  if (node.unused) figures.push(`${human(node.unused)} of them unused in slabs`);
  return figures.join(", ");
}

function showOwner(owner) {
  const { kind, name, bytes, objects, used: allocated, active, object_size, merged, variables } = owner;
  const rows = [
    ["bytes", human(bytes), isInUse(kind) ? `${share(bytes, used)} of the memory in use` : "", { figure: "bytes" }],
    ["pages", human(pagesOf(owner)), "", { figure: "pages" }],
  ];
  const parts = [
    element("p", { className: "kind", textContent: kind }),
    element("h2", { textContent: name, id: "selected" }),
    figures(...rows),
  ];
  if (objects !== undefined) {
    const cache = [
      ["objects", human(allocated ?? 0), `of room for ${human(objects)}`, { figure: "objects" }],
      ["size of one", human(object_size ?? 0), "bytes", { figure: "size" }],
      ["unused", human(unusedOf(owner)), "bytes", { figure: "unused" }],
    ];
    if (active !== undefined && active !== allocated) cache.push(["active", human(active), "as /proc/slabinfo counts"]);
    parts.push(figures(...cache));
  }
  parts.push(element("p", { className: "faint meaning", textContent: kindOf.get(kind).meaning }));
  if (merged) {
    parts.push(element("p", { className: "meaning", textContent: `${human(merged)} other ${merged === 1 ? "cache was" : "caches were"} merged into it.` }));
  }
  if (variables?.length) {
    const names = element("ul", { className: "names", id: "variables" }, ...variables.map((name) => element("li", { textContent: name })));
    parts.push(element("h3", { textContent: "Variables that point to it" }), names);
  }
  return parts;
}

function showNode(node) {
  const kind = node.parent === root ? kindOf.get(node.name) : null;
  return [
    element("p", { className: "kind", textContent: kind ? "kind" : "shown memory" }),
    element("h2", { textContent: fullName(node), id: "selected" }),
    figures(["bytes", human(node.bytes), "", { figure: "bytes" }], ...(node.unused ? [["unused in slabs", human(node.unused), "bytes", { figure: "unused" }]] : [])),
    element("p", { className: kind ? "faint meaning" : "hint", textContent: kind?.meaning ?? "Choose an owner to see its figures." }),
  ];
}

// Shows the memory of an owner, if its kind is hidden.
function reveal({ kind }) {
  if (kind !== "free" && kind !== "reserved") return;
  areaOf(kind).checked = true;
  if (kind === "free") view.withFree = true;
  else view.withReserved = true;
  measure(view);
}

const explorer = new Explorer({
  root,
  parts: PARTS,
  describe,
  title: () => "Largest",
  nodesOf: (owner) => [nodeOf.get(owner)],
  addressOf,
  itemAt: (address) => /^#\d+$/.test(address) ? owners[address.slice(1)] : undefined,
  showItem: showOwner,
  showNode,
  searched: owners,
  namesOf: (owner) => [owner.name, ...(owner.variables ?? [])],
  bytesOf: (owner) => owner.bytes,
  reveal,
  selected: (owner) => ownerTable.mark(owner),
});

const figure = (number) => (number === undefined ? "" : human(number));
const orderOf = (field) => (owner) => owner[field] ?? -1;
const ownerTable = new SortedTable(
  "Owners",
  [
    { name: "owner", isText: true, order: ({ name }) => name, show: (owner) => link(addressOf(owner), owner.name) },
    { name: "kind", isText: true, order: ({ kind }) => kind, show: ({ kind }) => kind },
    { name: "KiB", order: orderOf("bytes"), show: ({ bytes }) => kib(bytes) },
    { name: "in use", title: "share of the memory in use, MemTotal - MemFree", order: ({ kind, bytes }) => (isInUse(kind) ? bytes : -1), show: ({ kind, bytes }) => (isInUse(kind) ? share(bytes, used) : "") },
    { name: "objects", title: "allocated objects", order: orderOf("used"), show: (owner) => figure(owner.used) },
    { name: "room for", title: "objects that the slabs have room for, allocated or not", order: orderOf("objects"), show: (owner) => figure(owner.objects) },
    { name: "size", title: "bytes of an object, with padding", order: orderOf("object_size"), show: (owner) => figure(owner.object_size) },
    { name: "unused KiB", title: "memory of the slabs without an allocated object", order: unusedOf, show: (owner) => (owner.objects === undefined ? "" : kib(unusedOf(owner))) },
    { name: "merged", title: "caches that were merged into it", order: orderOf("merged"), show: ({ merged }) => (merged ? `+${human(merged)}` : "") },
  ],
  owners,
  { choose: (owner) => explorer.select(owner), data: (owner) => ({ owner: owner.name, kind: owner.kind, bytes: owner.bytes }), sortedBy: 2 },
);

const present = kinds.filter(({ name }) => owners.some((owner) => owner.kind === name));
const kindFilter = filters([["all", "all"], ...present.map(({ name }) => [name, name, `kind-${name}`])], "Kind of the owners", (wanted) => {
  press(kindFilter, wanted);
  ownerTable.filter((owner) => wanted === "all" || owner.kind === wanted);
  if (explorer.node.parent) explorer.zoom(root);
  explorer.light(wanted === "all" ? null : [...root.children.values()].filter(({ name }) => name === wanted));
});
press(kindFilter, "all");

const { total, free, slab, explained } = census.memory;
areaOf("input").textContent = `${census.kernel} — ${census.core}`;
document.title = `Who holds memory: ${census.core}`;
areaOf("figures").append(
  ...figures(
    ["in use", `${kib(used)}`, `of ${kib(total)} KiB`, { figure: "used", bytes: used }],
    ["explained", share(explained, used) || "0", `${kib(explained)} KiB`, { figure: "explained", bytes: explained }],
    ["slab", kib(slab), "KiB", { figure: "slab", bytes: slab }],
    ["reserved", kib(bytesOfKinds((kind) => kind === "reserved")), "KiB", { figure: "reserved" }],
    ["free", kib(free), "KiB", { figure: "free", bytes: free }],
  ).children,
);
function showMemory(change) {
  Object.assign(view, change);
  measure(view);
  explorer.redraw();
}
areaOf("switches").append(
  checkbox("reserved", "reserved", view.withReserved, (withReserved) => showMemory({ withReserved })),
  checkbox("free", "free", view.withFree, (withFree) => showMemory({ withFree })),
);
areaOf("tables").append(kindFilter, ownerTable.made);
measure(view);
explorer.start();
