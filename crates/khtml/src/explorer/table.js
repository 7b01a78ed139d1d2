// Tables. A row has cells, and `data` for its attributes.
function table(caption, heading, rows) {
  const head = element("tr", {}, ...heading.map((text) => element("th", { scope: "col", textContent: text })));
  const body = rows.map(({ cells, data }) => element("tr", { data }, ...cells.map((content) => element("td", {}, content))));
  const made = element("table", {}, element("caption", { textContent: caption }), element("thead", {}, head), element("tbody", {}, ...body));
  return element("div", { className: "scroll" }, made);
}

// More rows are shown on demand.
const ROWS = 250;

// A table that sorts by a column when its heading is clicked. A column has a name, `order`, which returns the number or
// text of an entry to sort by, `show`, which returns the content of the cell, and `isText`. A click on a row chooses the
// entry.
class SortedTable {
  constructor(caption, columns, entries, { choose, data, sortedBy, after = null }) {
    Object.assign(this, { columns, entries, choose, data, column: columns[sortedBy], limit: ROWS });
    this.isFalling = !this.column.isText;
    this.isShown = () => true;
    this.current = null;
    this.rows = new Map();
    this.caption = element("caption", { textContent: caption });
    this.heads = columns.map((column) => {
      const button = element("button", { type: "button", textContent: column.name, title: column.title ?? "" });
      button.addEventListener("click", () => this.sort(column));
      return element("th", { scope: "col", className: column.isText ? "text" : "", data: { column: column.name } }, button);
    });
    this.body = element("tbody");
    this.more = element("button", { type: "button", className: "show-all" });
    this.more.addEventListener("click", () => {
      this.limit = Infinity;
      this.draw();
    });
    const made = element("table", { className: "sorted" }, this.caption, element("thead", {}, element("tr", {}, ...this.heads)), this.body);
    this.made = element("div", {}, element("div", { className: "scroll" }, made), this.more);
    this.after = after;
    this.draw();
  }

  sort(column) {
    this.isFalling = column === this.column ? !this.isFalling : !column.isText;
    this.column = column;
    this.draw();
  }

  // Shows only some entries.
  filter(isShown) {
    this.isShown = isShown;
    this.draw();
  }

  // Marks the row of an entry.
  mark(entry) {
    this.rows.get(this.current)?.removeAttribute("aria-current");
    this.current = entry;
    this.rows.get(entry)?.setAttribute("aria-current", "true");
  }

  draw() {
    const { order, isText } = this.column;
    const compare = isText ? (a, b) => order(a).localeCompare(order(b), "en") : (a, b) => order(a) - order(b);
    const shown = this.entries.filter(this.isShown).sort((a, b) => (this.isFalling ? compare(b, a) : compare(a, b)));
    this.columns.forEach((column, index) => {
      this.heads[index].ariaSort = column === this.column ? (this.isFalling ? "descending" : "ascending") : null;
    });
    this.rows = new Map(shown.slice(0, this.limit).map((entry) => [entry, this.#row(entry)]));
    this.body.replaceChildren(...this.rows.values());
    this.more.hidden = shown.length <= this.limit;
    this.more.textContent = `Show all ${human(shown.length)}`;
    this.mark(this.current);
  }

  #row(entry) {
    const cells = this.columns.map((column) => element("td", { className: column.isText ? "text" : "" }, column.show(entry)));
    const row = element("tr", { data: this.data(entry) }, ...cells);
    row.addEventListener("click", (event) => {
      // A click on a link in the row is one of the link.
      if (!event.target.closest("a")) this.choose(entry);
    });
    return row;
  }
}

// Buttons, one of which is pressed. An entry has a label, a value, and maybe a CSS variable with a colour.
function filters(entries, label, choose) {
  const made = element("div", { className: "filters", role: "group", ariaLabel: label });
  for (const [text, value, colour] of entries) {
    const button = element("button", { type: "button", data: { filter: value } });
    if (colour) {
      const swatch = element("i");
      swatch.style.background = `var(--${colour})`;
      button.append(swatch, " ");
    }
    button.append(text);
    button.addEventListener("click", () => choose(value));
    made.append(button);
  }
  return made;
}

function press(group, value) {
  for (const button of group.children) button.ariaPressed = String(button.dataset.filter === value);
}
