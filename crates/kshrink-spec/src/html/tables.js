// The tables below the map: sizes, passes, opaque code, frozen pages, and the rest of report.json.
const SIZES = [
  ["text", "text"], ["data", "data"], ["frozen text", "frozen.text"], ["frozen data", "frozen.data"], ["packed", "frozen.packed"],
  ["init text", "init_text"], ["init data", "init_data"], ["image", "image"], ["compressed image", "compressed_image"],
  ["boot image", "boot_image"], ["init footprint", "init_footprint"], ["footprint", "footprint"],
];
const field = (table, path) => path.split(".").reduce((value, name) => value?.[name], table);

function drawFigures() {
  if (!report.sizes) return;
  const { before, after } = report.sizes;
  const tile = ([name, path]) => [name, human(field(after, path)), `from ${human(field(before, path))}`, { figure: path, before: field(before, path), after: field(after, path) }];
  const headline = ["footprint", "text", "data", "boot image"].map((name) => SIZES.find(([known]) => known === name));
  const tiles = figures(...headline.filter(([, path]) => field(before, path) && field(after, path)).map(tile));
  [...tiles.children].forEach((made) => {
    const { before, after } = made.dataset;
    const change = element("small", { className: Number(after) > Number(before) ? "change more" : "change", textContent: percent(Number(before), Number(after)) });
    made.querySelector("dd").firstChild.after(" ", change);
  });
  areaOf("figures").replaceChildren(...tiles.children);
}

function sizeTable() {
  const { before, after } = report.sizes;
  const rows = SIZES.filter(([, path]) => field(after, path) != null).map(([name, path]) => {
    const [was, is] = [field(before, path), field(after, path)];
    return { cells: [name, was == null ? "" : human(was), human(is), was == null ? "" : percent(was, is)], data: { size: path } };
  });
  return table("Sizes in bytes, as kelf size prints them", ["", "before", "now", ""], rows);
}

function passTable() {
  const rows = report.passes.map((pass) => {
    const step = steps.findIndex(({ name }) => name === pass.pass);
    const { functions, blocks, code_bytes, data_bytes } = pass.removed;
    const shown = step >= 0 && steps[step].removed > 0 ? modeButton(step, "show") : "";
    const counts = Object.entries(pass.counts ?? {}).filter(([, number]) => number);
    const name = counts.length ? element("details", {}, element("summary", { textContent: pass.pass }), element("ul", {}, ...counts.map(([what, number]) => element("li", { textContent: `${human(number)} ${what}` })))) : pass.pass;
    return { cells: [name, ...[functions, blocks, code_bytes, data_bytes, pass.redirected].map((number) => (number ? human(number) : "")), shown], data: { pass: pass.pass } };
  });
  const made = table("Removed by each pass", ["pass", "functions", "blocks", "code bytes", "data bytes", "redirected", "map"], rows);
  made.classList.add("passes");
  return made;
}

const byName = new Map();
for (const item of contents.items) for (const name of item[NAMES]) if (!byName.has(name)) byName.set(name, item);
for (const item of contents.items) if (item[KIND] === CODE) byName.set(place(item), item);

function opaqueList() {
  const reasons = new Map();
  for (const { what, why } of report.opaque) reasons.set(why, [...(reasons.get(why) ?? []), what]);
  const entry = (what) => (byName.has(what) ? itemLink(byName.get(what), what) : what);
  const groups = [...reasons].sort((a, b) => b[1].length - a[1].length);
  const opaque = contents.items.filter((item) => item[KIND] === CODE && item[PHRASE] !== null);
  const bytes = (items) => human(sum(items.flatMap((item) => item[AFTER].map(([, size]) => size))));
  const bytesOf = (why) => bytes(opaque.filter((item) => contents.phrases[item[PHRASE]] === why));
  return element(
    "section",
    {},
    element("h2", { textContent: `Opaque code: ${human(report.opaque.length)} functions and sections, ${bytes(opaque)} bytes` }),
    element("p", { className: "faint", textContent: "Opaque code is kept whole, because something about it is not understood." }),
    ...groups.map(([why, names]) => longList(`${why}: ${human(names.length)}, ${bytesOf(why)} bytes`, names.map(entry), { opaque: why, count: names.length })),
  );
}

function keptLists() {
  const kept = report.passes.filter((pass) => pass.pass !== "reach" && pass.kept.length);
  if (!kept.length) return [];
  const lists = kept.map((pass) => longList(`${pass.pass}: ${human(pass.kept.length)}`, pass.kept.map(({ what, why }) => `${what}: ${why}`), { kept: pass.pass }));
  return [element("section", {}, element("h2", { textContent: "Left unchanged by passes" }), ...lists)];
}

function assumptionList() {
  const entries = report.assumptions.map(({ name, says }) => element("span", {}, element("code", { textContent: name }), ` ${says}`));
  return element("section", {}, element("h2", { textContent: "Assumptions" }), longList(`${human(report.assumptions.length)} assumptions that the removals rest on`, entries, { assumptions: "" }));
}

function frozenPages() {
  const list = element("div", { className: "on-page" });
  const show = (number) => {
    const [address, layout, size, packed] = frozen.pages[number];
    const on = frozen.symbols.filter(([, , first, last]) => first <= number && number <= last);
    const entry = ([name, bytes]) => element("li", {}, byName.has(name) ? itemLink(byName.get(name), name) : name, element("span", { textContent: human(bytes) }));
    list.replaceChildren(
      element("h3", { textContent: `Page 0x${address.toString(16)}: ${layout}, ${human(size)} bytes in ${human(packed)}` }),
      element("ul", { className: "largest" }, ...on.map(entry)),
    );
  };
  const ratios = frozen.pages.map(([, , size, packed]) => packed / size);
  const [least, most] = [Math.min(...ratios), Math.max(...ratios)];
  const squares = frozen.pages.map(([address, layout, size, packed], number) => {
    const square = element("button", { type: "button", className: `square ${layout}`, ariaLabel: `Page 0x${address.toString(16)}: ${human(packed)} of ${human(size)} bytes` });
    square.style.setProperty("--full", ((ratios[number] - least) / (most - least || 1)).toFixed(3));
    square.addEventListener("click", () => show(number));
    return square;
  });
  const { size, packed } = frozen;
  return element(
    "section",
    { id: "frozen-pages" },
    element("h2", { textContent: `Frozen pages: ${human(frozen.pages.length)}, ${human(size)} bytes packed into ${human(packed)}` }),
    element("p", { className: "faint", textContent: "The darker a page, the larger it is when packed. Choose a page to see its functions." }),
    element("div", { className: "squares" }, ...squares),
    list,
  );
}

function phaseTable() {
  const rows = report.phases.map(({ name, seconds, peak_memory_kib }) => ({ cells: [name, seconds.toFixed(2), peak_memory_kib ? human(Math.round(peak_memory_kib / 1024)) : ""] }));
  return table("Time and memory", ["phase", "seconds", "peak MiB"], rows);
}

function drawTables() {
  const left = [...(report.sizes ? [sizeTable()] : []), phaseTable()];
  const right = [passTable(), opaqueList(), ...keptLists(), assumptionList(), ...(frozen ? [frozenPages()] : [])];
  areaOf("tables").append(element("div", {}, ...right), element("div", {}, ...left));
}
