// The map: a cell for each node that is large enough to be seen.
const HEAD = 17;
const SMALLEST = 3;
// A node with less room for each child, in square pixels, is one cell.
const CROWDED = 90;

// Returns the background of a node: its parts from left to right, or from top to bottom. A part without a colour shows
// the hatching below.
function fill(node, colours, { width, height }) {
  const stops = [];
  let at = 0;
  node.parts.forEach((part, index) => {
    if (!part) return;
    const end = at + (100 * part) / node.value;
    stops.push(`${colours[index] ? `var(--${colours[index]})` : "transparent"} ${at.toFixed(2)}% ${end.toFixed(2)}%`);
    at = end;
  });
  return stops.length ? `linear-gradient(${width >= height ? "to right" : "to bottom"}, ${stops.join(", ")})` : "none";
}

class Treemap {
  // `colours` are the names of CSS variables for the parts of nodes; `describe` returns the figures of a node as text,
  // `choose` and `point` are called with the node of a cell that is clicked or pointed at.
  constructor(area, { colours, describe, choose, point }) {
    Object.assign(this, { area, colours, describe, choose, point, cells: [], lit: null, marked: null });
    area.addEventListener("keydown", (event) => this.#step(event));
  }

  draw(node) {
    const fragment = document.createDocumentFragment();
    this.cells = [];
    this.#drawChildren(node, { x: 0, y: 0, width: this.area.clientWidth, height: this.area.clientHeight }, 0, fragment);
    this.area.replaceChildren(fragment);
    this.area.classList.toggle("empty", !this.cells.length);
    if (this.cells.length) this.cells[0].made.tabIndex = 0;
    this.mark(this.marked);
    this.light(this.lit);
  }

  // Draws the border of a node, or of the smallest cell that holds it.
  mark(node) {
    this.marked = node;
    const around = node ? new Set(pathOf(node)) : new Set();
    const holding = this.cells.filter(({ node: of, made }) => {
      made.removeAttribute("aria-current");
      return around.has(of);
    });
    if (holding.length) holding[holding.length - 1].made.setAttribute("aria-current", "true");
  }

  // Dims all cells but those of some nodes, and those that hold one; with null, none.
  light(nodes) {
    this.lit = nodes;
    this.area.classList.toggle("dim", nodes !== null);
    const around = new Set((nodes ?? []).flatMap(pathOf));
    const below = new Set(nodes ?? []);
    for (const { node, made } of this.cells) {
      made.classList.toggle("lit", around.has(node) || pathOf(node).some((above) => below.has(above)));
    }
  }

  #drawChildren(node, box, depth, into) {
    const children = largestFirst(node);
    const boxes = squarify(children.map((below) => below.value), box);
    children.forEach((below, index) => {
      const { x, y, width, height } = boxes[index];
      if (width < SMALLEST || height < SMALLEST) return;
      const gap = { x, y, width: width - 1, height: height - 1 };
      const roomy = width > 54 && height > HEAD + 22 && width * height > CROWDED * below.children.size;
      const isGroup = below.children.size > 0 && depth < 3 && roomy;
      into.append(this.#cell(below, gap, isGroup));
      if (!isGroup) return;
      const inner = { x: x + 2, y: y + HEAD, width: width - 5, height: height - HEAD - 3 };
      this.#drawChildren(below, inner, depth + 1, into);
    });
  }

  #cell(node, box, isGroup) {
    const made = element("button", {
      type: "button",
      className: isGroup ? "cell group" : "cell",
      tabIndex: -1,
      ariaLabel: `${fullName(node)}: ${this.describe(node)}`,
    });
    const { x, y, width, height } = box;
    Object.assign(made.style, { left: `${x}px`, top: `${y}px`, width: `${width}px`, height: `${height}px` });
    if (!isGroup) made.style.setProperty("--fill", fill(node, this.colours, box));
    if (isGroup || (width > 34 && height > 15)) made.append(element("span", { textContent: node.name }));
    made.addEventListener("click", () => this.choose(node));
    made.addEventListener("pointerenter", () => this.point(node));
    made.addEventListener("focus", () => this.point(node));
    this.cells.push({ node, box, made });
    return made;
  }

  // The arrow keys go to the nearest cell in their direction.
  #step(event) {
    const directions = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };
    const direction = directions[event.key];
    const from = this.cells.find(({ made }) => made === event.target);
    if (!direction || !from) return;
    event.preventDefault();
    const center = ({ x, y, width, height }) => [x + width / 2, y + height / 2];
    const [fromX, fromY] = center(from.box);
    let [best, nearest] = [null, Infinity];
    for (const to of this.cells) {
      const [dx, dy] = [center(to.box)[0] - fromX, center(to.box)[1] - fromY];
      const [ahead, aside] = [dx * direction[0] + dy * direction[1], Math.abs(dx * direction[1]) + Math.abs(dy * direction[0])];
      const distance = ahead + 2 * aside;
      if (ahead > 1 && distance < nearest) [best, nearest] = [to, distance];
    }
    if (!best) return;
    from.made.tabIndex = -1;
    best.made.tabIndex = 0;
    best.made.focus();
  }
}
