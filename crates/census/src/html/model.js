// The owners of a census, and the tree of kinds and owners.
const census = read("census");
const kinds = read("kinds").map(([name, meaning, isExplained]) => ({ name, meaning, isExplained }));
const kindOf = new Map(kinds.map((kind, number) => [kind.name, { ...kind, number }]));

// The parts of a node: its bytes by kind. Unused memory of slabs is hatched.
const PARTS = [...kinds.map(({ name }) => [name, `kind-${name}`]), ["unused in slabs", null]];
const UNUSED = kinds.length;

const owners = census.owners;
const root = newRoot("memory");
const nodeOf = new Map();
// Owners are in the order of their kinds.
for (const owner of owners) nodeOf.set(owner, child(child(root, owner.kind), owner.name, owner));

const numbers = new Map(owners.map((owner, number) => [owner, number]));
const addressOf = (owner) => `#${numbers.get(owner)}`;
const pagesOf = (owner) => Math.round(owner.bytes / (census.page_size || 1));

// Returns the bytes of a slab cache that hold no allocated object.
function unusedOf(owner) {
  if (owner.object_size === undefined || owner.used === undefined) return 0;
  return Math.max(0, owner.bytes - owner.used * owner.object_size);
}

const bytesOfKinds = (isWanted) => sum(owners.filter(({ kind }) => isWanted(kind)).map(({ bytes }) => bytes));
const used = Math.max(0, census.memory.total - census.memory.free);
const isInUse = (kind) => kind !== "free" && kind !== "reserved";

// Sets the sums of all nodes, with free and reserved memory or without.
function measure({ withFree, withReserved }) {
  sumTree(root, PARTS.length, ["bytes", "unused"], (node) => {
    const owner = node.item;
    if ((owner.kind === "free" && !withFree) || (owner.kind === "reserved" && !withReserved)) return;
    node.bytes = owner.bytes;
    node.unused = unusedOf(owner);
    node.parts[kindOf.get(owner.kind).number] = owner.bytes - node.unused;
    node.parts[UNUSED] = node.unused;
  });
}
