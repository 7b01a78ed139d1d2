// The map: a cell for each directory, object or item that is large enough to be seen.
const HEAD = 17;
const SMALLEST = 3;
// A directory or an object with less room for each child, in square pixels, is one cell.
const CROWDED = 90;
const treemap = document.getElementById("treemap");
const shown = { node: root, cells: [] };

function element(tag, properties = {}, ...children) {
  const made = document.createElement(tag);
  const { data, ...others } = properties;
  Object.assign(made, others);
  Object.assign(made.dataset, data ?? {});
  made.append(...children);
  return made;
}

// The parts of a cell from left to right, or from top to bottom; the removed one shows the hatching below.
function fill(node, { width, height }) {
  const stops = [];
  let at = 0;
  PARTS.slice(0, 4).forEach((part, index) => {
    if (!node.parts[index]) return;
    const end = at + (100 * node.parts[index]) / node.value;
    stops.push(`var(--${part}) ${at.toFixed(2)}% ${end.toFixed(2)}%`);
    at = end;
  });
  stops.push(`transparent ${at.toFixed(2)}% 100%`);
  return `linear-gradient(${width >= height ? "to right" : "to bottom"}, ${stops.join(", ")})`;
}

function describe(node) {
  const bytes = [`${human(node.before)} bytes before`, `${human(node.memory)} now`];
  if (node.frozen) bytes.push(`${human(node.frozen)} frozen`);
  return bytes.join(", ");
}

const fullName = (node) => (node.parent ? pathOf(node).slice(1).map((part) => part.name).join("/") : node.name);

function cell(node, box, isGroup) {
  const made = element("button", {
    type: "button",
    className: isGroup ? "cell group" : "cell",
    tabIndex: -1,
    ariaLabel: `${fullName(node)}: ${describe(node)}`,
  });
  const { x, y, width, height } = box;
  Object.assign(made.style, { left: `${x}px`, top: `${y}px`, width: `${width}px`, height: `${height}px` });
  if (!isGroup) made.style.setProperty("--fill", fill(node, box));
  if (isGroup || (width > 34 && height > 15)) made.append(element("span", { textContent: node.name }));
  made.addEventListener("click", () => enter(node));
  made.addEventListener("pointerenter", () => tell(node));
  made.addEventListener("focus", () => tell(node));
  shown.cells.push({ node, box, made });
  return made;
}

function draw(node, box, depth, into) {
  const children = [...node.children.values()].filter((below) => below.value > 0);
  children.sort((a, b) => b.value - a.value);
  const boxes = squarify(children.map((below) => below.value), box);
  children.forEach((below, index) => {
    const { x, y, width, height } = boxes[index];
    if (width < SMALLEST || height < SMALLEST) return;
    const gap = { x, y, width: width - 1, height: height - 1 };
    const roomy = width > 54 && height > HEAD + 22 && width * height > CROWDED * below.children.size;
    const isGroup = below.children.size > 0 && depth < 3 && roomy;
    into.append(cell(below, gap, isGroup));
    if (!isGroup) return;
    const inner = { x: x + 2, y: y + HEAD, width: width - 5, height: height - HEAD - 3 };
    draw(below, inner, depth + 1, into);
  });
}

function drawMap() {
  const fragment = document.createDocumentFragment();
  shown.cells = [];
  const box = { x: 0, y: 0, width: treemap.clientWidth, height: treemap.clientHeight };
  draw(shown.node, box, 0, fragment);
  treemap.replaceChildren(fragment);
  treemap.classList.toggle("empty", !shown.cells.length);
  if (shown.cells.length) shown.cells[0].made.tabIndex = 0;
  mark();
  drawLegend();
}

// Draws the border of the selected item, or of the directory or object that holds it.
function mark() {
  const node = selected.item && nodeOf.get(selected.item);
  const around = node ? new Set(pathOf(node)) : new Set();
  const holding = shown.cells.filter(({ node: of, made }) => {
    made.removeAttribute("aria-current");
    return around.has(of);
  });
  if (holding.length) holding[holding.length - 1].made.setAttribute("aria-current", "true");
}

// The arrow keys go to the nearest cell in their direction.
treemap.addEventListener("keydown", (event) => {
  const directions = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };
  const direction = directions[event.key];
  const from = shown.cells.find(({ made }) => made === event.target);
  if (!direction || !from) return;
  event.preventDefault();
  const center = ({ x, y, width, height }) => [x + width / 2, y + height / 2];
  const [fromX, fromY] = center(from.box);
  let [best, nearest] = [null, Infinity];
  for (const to of shown.cells) {
    const [dx, dy] = [center(to.box)[0] - fromX, center(to.box)[1] - fromY];
    const [ahead, aside] = [dx * direction[0] + dy * direction[1], Math.abs(dx * direction[1]) + Math.abs(dy * direction[0])];
    const distance = ahead + 2 * aside;
    if (ahead > 1 && distance < nearest) [best, nearest] = [to, distance];
  }
  if (!best) return;
  from.made.tabIndex = -1;
  best.made.tabIndex = 0;
  best.made.focus();
});
