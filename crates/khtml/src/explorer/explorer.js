// Connects the map with the path, the status, the legend, the panel and the search.
const LISTED = 12;
const isNarrow = () => matchMedia("(max-width: 60rem)").matches;

class Explorer {
  // The page provides the following:
  //   root           the tree, with sums
  //   parts          for each part of a node, its label and the CSS variable of its colour (null: hatched)
  //   describe       returns the figures of a node as text
  //   nodesOf        returns the nodes of an item
  //   addressOf      returns the address of an item: text from `#` on
  //   itemAt         returns the item at an address, if there is one
  //   showItem       returns the content of the panel for an item
  //   showNode       returns the content of the panel for a node, before its largest children
  //   title          returns the heading of the largest children
  //   searched       the items that the search finds
  //   namesOf        returns the names of an item
  //   bytesOf        returns the bytes of an item, by which the search sorts
  //   reveal         may bring a hidden item into the map before it is selected
  //   selected       is called when the selection changes
  constructor(page) {
    this.page = page;
    this.node = page.root;
    this.item = null;
    this.panel = areaOf("panel");
    this.map = new Treemap(areaOf("treemap"), {
      colours: page.parts.map(([, colour]) => colour),
      describe: page.describe,
      choose: (node) => this.enter(node),
      point: (node) => this.tell(node),
    });
    const query = areaOf("query");
    query.addEventListener("input", () => (query.value.length > 1 ? this.#showFound(query.value) : this.#showNode()));
    areaOf("find").addEventListener("submit", (event) => {
      event.preventDefault();
      document.querySelector("#found a")?.click();
    });
    addEventListener("keydown", (event) => {
      if (event.key !== "Escape") return;
      if (this.item) this.zoom(this.node);
      else if (this.node.parent) this.zoom(this.node.parent);
    });
    addEventListener("hashchange", () => this.#goToAddress());
    new ResizeObserver(() => this.map.draw(this.node)).observe(this.map.area);
  }

  // Draws the page for the first time: the item of the address, or the whole tree.
  start() {
    this.redraw();
    this.#goToAddress();
  }

  // Draws everything again, after the sums or the parts of the page have changed.
  redraw() {
    if (!this.node.value) this.node = this.page.root;
    this.map.colours = this.page.parts.map(([, colour]) => colour);
    this.#drawPlace();
    if (this.item) this.#showItem();
    else this.#showNode();
    this.tell(this.node);
  }

  // Shows a node, and selects nothing.
  zoom(node) {
    this.node = node;
    this.item = null;
    this.map.marked = this.map.lit = null;
    // No assignment to the hash: that would scroll to the top.
    history.replaceState(null, "", "#");
    this.#drawPlace();
    this.#showNode();
    this.tell(node);
    this.page.selected?.(null);
  }

  enter(node) {
    if (node.item) this.select(node.item);
    else this.zoom(node);
  }

  // Selects an item: marks its node, or dims all nodes but those that the item stands for.
  select(item) {
    this.page.reveal?.(item);
    this.item = item;
    if (location.hash !== this.page.addressOf(item)) location.hash = this.page.addressOf(item);
    const nodes = this.page.nodesOf(item);
    const isHere = (node) => pathOf(node).includes(this.node);
    const isOne = nodes.length === 1 && nodes[0].item === item;
    this.map.marked = isOne ? nodes[0] : null;
    this.map.lit = isOne || !nodes.length ? null : nodes;
    if (isOne && !isHere(nodes[0].parent)) this.node = nodes[0].parent;
    else if (!isOne && !nodes.some(isHere)) this.node = this.page.root;
    this.#drawPlace();
    this.#showItem();
    this.#scroll();
    this.page.selected?.(item);
  }

  // Dims all nodes but some, and selects nothing; with null, dims none.
  light(nodes) {
    this.item = null;
    this.map.mark(null);
    this.map.light(nodes);
    this.#showNode();
    this.page.selected?.(null);
  }

  tell(node) {
    areaOf("status").textContent = `${fullName(node)}: ${this.page.describe(node)}`;
  }

  #drawPlace() {
    const path = pathOf(this.node);
    areaOf("path").replaceChildren(
      ...path.flatMap((node, index) => {
        const button = element("button", { type: "button", textContent: node.name, disabled: node === this.node });
        button.addEventListener("click", () => this.zoom(node));
        return index ? [element("span", { textContent: "/" }), button] : [button];
      }),
    );
    this.map.draw(this.node);
    const entries = this.page.parts.flatMap(([label, colour], part) => {
      const bytes = this.node.parts[part];
      if (!(bytes > 0)) return [];
      const swatch = element("i", { className: colour ? "" : "hatched" });
      if (colour) swatch.style.background = `var(--${colour})`;
      return [element("span", { data: { part: label } }, swatch, `${label} ${human(bytes)}`)];
    });
    areaOf("legend").replaceChildren(...entries);
  }

  // Brings the panel into view, after a click in a table below the map.
  #scroll() {
    const { top, bottom } = this.panel.getBoundingClientRect();
    if (isNarrow()) this.panel.scrollIntoView({ block: "start", behavior: "smooth" });
    else if (bottom < 200 || top > innerHeight - 200) this.panel.closest("main").scrollIntoView({ block: "start", behavior: "smooth" });
  }

  #showItem() {
    this.panel.replaceChildren(...this.page.showItem(this.item));
    this.panel.scrollTop = 0;
  }

  #showNode() {
    const list = element("ul", { className: "largest" });
    const children = largestFirst(this.node);
    for (const below of children.slice(0, LISTED)) {
      const name = element("button", { type: "button", className: "link", textContent: below.name });
      name.addEventListener("click", () => this.enter(below));
      const bar = element("i", { className: "bar" });
      bar.style.setProperty("--fill", fill(below, this.map.colours, { width: 2, height: 1 }));
      bar.style.width = `${(100 * below.value) / children[0].value}%`;
      list.append(element("li", {}, name, element("span", { textContent: human(below.value) }), bar));
    }
    this.panel.replaceChildren(...this.page.showNode(this.node), element("h3", { textContent: this.page.title() }), list);
    this.panel.scrollTop = 0;
  }

  #showFound(query) {
    const wanted = query.toLowerCase();
    const rank = (item) => {
      const names = this.page.namesOf(item).map((name) => name.toLowerCase());
      if (names.includes(wanted)) return 0;
      return names.some((name) => name.startsWith(wanted)) ? 1 : names.some((name) => name.includes(wanted)) ? 2 : 3;
    };
    const found = this.page.searched.map((item) => [rank(item), item]).filter(([rank]) => rank < 3);
    found.sort((a, b) => a[0] - b[0] || this.page.bytesOf(b[1]) - this.page.bytesOf(a[1]));
    const list = element("ul", { className: "largest", id: "found" });
    for (const [, item] of found.slice(0, 3 * LISTED)) {
      const name = this.page.namesOf(item).find((name) => name.toLowerCase().includes(wanted));
      list.append(element("li", {}, link(this.page.addressOf(item), name), element("span", { textContent: human(this.page.bytesOf(item)) })));
    }
    this.panel.replaceChildren(
      element("p", { className: "kind", textContent: "search" }),
      element("h2", { textContent: found.length ? `${human(found.length)} with “${query}”` : `Nothing is called “${query}”` }),
      list,
    );
  }

  #goToAddress() {
    const item = this.page.itemAt(location.hash);
    if (item && item !== this.item) this.select(item);
  }
}
