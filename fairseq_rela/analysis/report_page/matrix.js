// What is shown of a sentence: rows and columns of tokens or of words, the cells between them, and gold links.

const LONGEST_LABEL = 22;

function shortened(text) {
  const chars = Array.from(text);
  return chars.length > LONGEST_LABEL ? chars.slice(0, LONGEST_LABEL - 1).join("") + "…" : text;
}

// Each word is isolated, so that words of both directions keep their order.
function words(tokens) { return tokens.map((text) => "\u2068" + text + "\u2069").join(" "); }

// Tokens of an axis with the word each is of: {tokens, words, text}
function axes(sentence, kind, byInput) {
  const source = { tokens: sentence.source, words: sentence.source_words, text: sentence.source_text };
  const target = { tokens: sentence.target, words: sentence.target_words, text: sentence.target_text };
  const before = {
    tokens: [sentence.begin || "</s>"].concat(target.tokens.slice(0, -1)),
    words: [-1].concat(target.words.slice(0, -1)),
    text: target.text,
  };
  const query = byInput ? before : target;
  if (kind === "encoder") return { rows: source, columns: source };
  return { rows: query, columns: kind === "decoder" ? before : source };
}

// The pieces that make one row or column: each by itself, or all of a word.
function groups(axis, wholeWords) {
  const found = [];
  axis.tokens.forEach((token, index) => {
    const word = axis.words[index];
    const last = found[found.length - 1];
    if (wholeWords && word >= 0 && last && last.word === word) last.members.push(index);
    else found.push({ word, members: [index], label: wholeWords && word >= 0 ? axis.text[word] : token });
  });
  return found;
}

function cell(values, size, kind, row, column) {
  let total = 0, seen = false, zero = true;
  for (const t of row.members) {
    for (const s of column.members) {
      if (!visible(kind, t, s)) continue;
      seen = true;
      const value = values[t * size.keys + s];
      if (value !== 0) zero = false;
      total += value / row.members.length;
    }
  }
  return { value: total, seen, zero };
}

function matrix(values, size, kind, rows, columns) {
  const cells = rows.map((row) => columns.map((column) => cell(values, size, kind, row, column)));
  const nulls = cells.map((row) => row.every((each) => !each.seen || each.zero));
  let top = 0, seen = 0, zeros = 0;
  for (const row of cells) {
    for (const each of row) {
      top = Math.max(top, Math.abs(each.value));
      seen += each.seen;
      zeros += each.seen && each.zero;
    }
  }
  return { cells, nulls, top, zeros: zeros / Math.max(seen, 1) };
}

// "sure", "possible" or null: the gold link between the words of a row and a column.
function goldLink(sentence, row, column) {
  const gold = sentence.gold;
  if (row.word < 0 || column.word < 0) return null;
  const key = column.word + "-" + row.word;
  if (!gold.index) gold.index = { sure: new Set(gold.sure), possible: new Set(gold.possible) };
  return gold.index.sure.has(key) ? "sure" : gold.index.possible.has(key) ? "possible" : null;
}

// What a reader is told about a cell, a row or a column of a view.
function told(view, at) {
  const { rows, columns, made } = view;
  if (at.row !== undefined && at.column !== undefined) {
    const each = made.cells[at.row][at.column];
    const link = view.gold(rows[at.row], columns[at.column]);
    const value = !each.seen ? "hidden: it lies in the future"
      : made.nulls[at.row] ? "null row: attends to nothing" : each.zero ? "exactly 0" : "≈ " + each.value.toPrecision(2);
    return words([rows[at.row].label]) + " → " + words([columns[at.column].label]) + ": " + value
      + (link ? " (gold: " + link + ")" : "");
  }
  const isRow = at.row !== undefined;
  const label = words([(isRow ? rows[at.row] : columns[at.column]).label]);
  const line = isRow ? made.cells[at.row].map((each, s) => ({ each, label: columns[s].label }))
    : made.cells.map((row, t) => ({ each: row[at.column], label: rows[t].label }));
  const seen = line.filter(({ each }) => each.seen);
  const weighted = seen.filter(({ each }) => !each.zero).sort((a, b) => Math.abs(b.each.value) - Math.abs(a.each.value));
  const zeros = ` (${seen.length - weighted.length} of ${seen.length} exactly 0)`;
  if (!weighted.length) return label + (isRow ? " attends to nothing (null row)" : " is attended by nothing") + zeros;
  const most = weighted.slice(0, 6).map((each) => words([each.label]) + " " + each.each.value.toPrecision(2));
  return label + (isRow ? " attends to " : " is attended by ") + most.join(", ") + (weighted.length > 6 ? ", …" : "") + zeros;
}
