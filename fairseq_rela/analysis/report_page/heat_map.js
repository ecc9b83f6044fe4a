// A view as a heat map: rows are queries, columns are keys.

const heatMap = {
  layout(view, room) {
    const width = (group) => textWidth(shortened(group.label));
    const left = Math.ceil(Math.max(60, ...view.rows.map(width))) + 34;
    const above = Math.ceil(Math.max(40, ...view.columns.map(width))) + 10;
    const free = Math.max(300, room - left - 20);
    const cell = Math.max(12, Math.min(30, Math.floor(free / Math.max(view.columns.length, 1))));
    return {
      left, above, cell, width: left + cell * view.columns.length + 2, height: above + cell * view.rows.length + 2,
    };
  },

  paint(surface, view, { left, above, cell }, at) {
    const { rows, columns, made } = view;
    columns.forEach((column, s) => surface.text(shortened(column.label), left + s * cell + cell / 2, above - 5,
      { up: true, bold: s === at.column, fill: s === at.column ? COLOURS.marked : COLOURS.text }));
    rows.forEach((row, t) => {
      const y = above + t * cell;
      const fill = t === at.row ? COLOURS.marked : made.nulls[t] ? COLOURS.nullText : COLOURS.text;
      surface.text(shortened(row.label), left - 26, y + cell / 2, { anchor: "right", fill, bold: t === at.row });
      if (made.nulls[t]) surface.text("∅", left - 8, y + cell / 2, { anchor: "right", fill: COLOURS.nullText });
      columns.forEach((_, s) => {
        const value = made.cells[t][s];
        const colourHere = !value.seen ? COLOURS.hidden : made.nulls[t] ? COLOURS.null
          : value.zero ? COLOURS.zero : css(colour(value.value, made.top));
        surface.rect(left + s * cell, y, cell, cell, colourHere);
        surface.frame(left + s * cell + 0.5, y + 0.5, cell - 1, cell - 1, COLOURS.grid, 1);
      });
      if (made.nulls[t]) surface.hatch(left, y, made.cells[t].filter((value) => value.seen).length * cell, cell);
    });
    rows.forEach((row, t) => columns.forEach((column, s) => {
      const link = view.gold(row, column);
      if (!link) return;
      surface.frame(left + s * cell + 2, above + t * cell + 2, cell - 4, cell - 4, COLOURS.sure, 2, link === "sure" ? [] : [3, 2]);
    }));
    const [wide, high] = [columns.length * cell, rows.length * cell];
    if (at.row !== undefined) surface.frame(left, above + at.row * cell, wide, cell, COLOURS.marked, 1.5);
    if (at.column !== undefined) surface.frame(left + at.column * cell, above, cell, high, COLOURS.marked, 1.5);
  },

  // The row, the column or both at a place: a label is one of them, a cell is both.
  at(view, { left, above, cell }, x, y) {
    const column = Math.floor((x - left) / cell), row = Math.floor((y - above) / cell);
    const found = {};
    if (y >= above && row < view.rows.length) found.row = row;
    if (x >= left && column < view.columns.length) found.column = column;
    if (y >= above && row >= view.rows.length) return {};
    if (x >= left && column >= view.columns.length) return {};
    return found;
  },
};
