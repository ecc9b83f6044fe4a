// A view as lines between words: queries on the left, keys on the right. A weight of 0 has no line.

const lineView = {
  layout(view, room) {
    const width = (group) => textWidth(shortened(group.label), "bold " + FONT);
    const left = Math.ceil(Math.max(60, ...view.rows.map(width))) + 40;
    const right = Math.ceil(Math.max(60, ...view.columns.map(width))) + 24;
    const gap = Math.max(140, Math.min(420, room - left - right - 10));
    const most = Math.max(view.rows.length, view.columns.length);
    const step = most > 40 ? 18 : 22;
    return {
      left, gap, step, width: left + gap + right, height: most * step + 12,
      rowTop: 6 + ((most - view.rows.length) * step) / 2, columnTop: 6 + ((most - view.columns.length) * step) / 2,
    };
  },

  paint(surface, view, { left, gap, step, rowTop, columnTop }, at) {
    const { rows, columns, made } = view;
    const y = (top, index) => top + (index + 0.5) * step;
    const pointed = at.row !== undefined || at.column !== undefined;
    const on = (t, s) => (at.row === undefined || at.row === t) && (at.column === undefined || at.column === s);
    const line = (t, s, stroke, width, opacity) => surface.curve(
      left + 4, y(rowTop, t), left + gap - 4, y(columnTop, s), stroke, width, opacity);
    const drawn = [];
    rows.forEach((row, t) => columns.forEach((column, s) => {
      const link = view.gold(row, column);
      if (link) line(t, s, COLOURS.sure, 9, link === "sure" ? 0.22 : 0.12);
      const value = made.cells[t][s];
      if (value.seen && !value.zero) drawn.push({ t, s, value: value.value });
    }));
    drawn.sort((a, b) => Math.abs(a.value) - Math.abs(b.value)); // the strongest lie on top
    for (const { t, s, value } of drawn) {
      const size = share(value, made.top);
      line(t, s, css(colour(value, made.top)), 0.6 + 3.4 * size, pointed && !on(t, s) ? 0.06 : 0.35 + 0.65 * size);
    }
    // Words of the other side are shaded by their weight for the word that is pointed at.
    for (const { t, s, value } of drawn) {
      if (!pointed || !on(t, s)) continue;
      const fill = css(mix([255, 255, 255], colour(value, made.top), 0.2 + 0.3 * share(value, made.top)));
      if (at.row === t) surface.rect(left + gap, y(columnTop, s) - step / 2 + 1, textWidth(shortened(columns[s].label)) + 8, step - 2, fill);
      if (at.column === s) {
        const wide = textWidth(shortened(rows[t].label)) + 8;
        surface.rect(left - 20 - wide, y(rowTop, t) - step / 2 + 1, wide, step - 2, fill);
      }
    }
    rows.forEach((row, t) => {
      const fill = t === at.row ? COLOURS.marked : made.nulls[t] ? COLOURS.nullText : COLOURS.text;
      surface.text(shortened(row.label), left - 24, y(rowTop, t), { anchor: "right", fill, bold: t === at.row });
      if (made.nulls[t]) {
        surface.rect(left - 18, y(rowTop, t) - 8, 18, 16, COLOURS.null);
        surface.hatch(left - 18, y(rowTop, t) - 8, 18, 16);
        surface.text("∅", left - 9, y(rowTop, t), { anchor: "center", fill: COLOURS.nullText, bold: true });
      }
    });
    columns.forEach((column, s) => surface.text(shortened(column.label), left + gap + 4, y(columnTop, s),
      { bold: s === at.column, fill: s === at.column ? COLOURS.marked : COLOURS.text }));
  },

  at(view, { left, gap, step, rowTop, columnTop }, x, y) {
    const row = Math.floor((y - rowTop) / step), column = Math.floor((y - columnTop) / step);
    if (x < left + gap / 2) return row >= 0 && row < view.rows.length ? { row } : {};
    return column >= 0 && column < view.columns.length ? { column } : {};
  },
};
