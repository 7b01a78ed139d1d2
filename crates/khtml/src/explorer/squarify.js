// Bruls, Huizing, van Wijk: Squarified Treemaps (2000). Cuts a rectangle into one for each value, in falling order.
function squarify(values, { x, y, width, height }) {
  const rectangles = [];
  const total = sum(values);
  const scale = total ? (width * height) / total : 0;
  let at = 0;
  const worst = (row, side) => {
    const area = sum(row);
    const [largest, smallest] = [row[0], row[row.length - 1]];
    return Math.max((side * side * largest) / (area * area), (area * area) / (side * side * smallest));
  };
  while (at < values.length && values[at] > 0) {
    const side = Math.min(width, height);
    const row = [values[at++] * scale];
    while (at < values.length && values[at] > 0) {
      const longer = [...row, values[at] * scale];
      if (worst(longer, side) > worst(row, side)) break;
      row.push(values[at++] * scale);
    }
    const thick = side ? sum(row) / side : 0;
    let along = 0;
    for (const area of row) {
      const length = thick ? area / thick : 0;
      rectangles.push(
        width >= height
          ? { x, y: y + along, width: thick, height: length }
          : { x: x + along, y, width: length, height: thick },
      );
      along += length;
    }
    if (width >= height) [x, width] = [x + thick, Math.max(0, width - thick)];
    else [y, height] = [y + thick, Math.max(0, height - thick)];
  }
  return rectangles;
}
