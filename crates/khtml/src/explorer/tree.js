// The tree of a map. A node with an item is a leaf; others have children.
const newRoot = (name) => ({ name, parent: null, children: new Map(), item: null });

function child(node, name, item = null) {
  const key = item === null ? name : node.children.size;
  if (!node.children.has(key)) {
    node.children.set(key, { name, parent: node, children: new Map(), item });
  }
  return node.children.get(key);
}

const pathOf = (node) => (node.parent ? [...pathOf(node.parent), node] : [node]);
const fullName = (node) => (node.parent ? pathOf(node).slice(1).map((part) => part.name).join("/") : node.name);

// Sets `parts` of all nodes, their sum `value`, and further sums. `leaf` sets those of a node with an item.
function sumTree(root, parts, fields, leaf) {
  const visit = (node) => {
    node.parts = Array(parts).fill(0);
    for (const field of fields) node[field] = 0;
    if (node.item) leaf(node);
    for (const below of node.children.values()) {
      visit(below);
      node.parts = node.parts.map((bytes, part) => bytes + below.parts[part]);
      for (const field of fields) node[field] += below[field];
    }
    node.value = sum(node.parts);
  };
  visit(root);
}

const largestFirst = (node) => [...node.children.values()].filter((below) => below.value > 0).sort((a, b) => b.value - a.value);
