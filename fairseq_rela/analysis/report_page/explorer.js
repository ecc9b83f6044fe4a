// The attention explorer. Takes its data from the page itself; every word is set as text, never as markup.
"use strict";
(function () {
  const data = JSON.parse(document.getElementById("explorer-data").textContent);
  const LEVELS = 127;
  const LONGEST_LABEL = 22;
  const COLOURS = { zero: "#ffffff", hidden: "#ececec", null: "#f6e3b4", nullLine: "#c9a227", sure: "#00875a" };
  const HINTS = { encoder: "source → source", decoder: "target → target so far", cross: "target → source" };
  const state = { model: 0, sentence: 0, kind: "cross", layer: 0, head: -1, words: false, gold: true, input: false };
  const element = (id) => document.getElementById(id);
  const canvas = element("map");
  let shown = null; // the matrix on the screen, and how it is laid out
  let drawing = 0; // numbers the calls of `draw`, so that a slow one does not paint over a later one

  // ---- weights -------------------------------------------------------------------------------------------------

  async function inflate(base64) {
    const bytes = Uint8Array.from(atob(base64), (char) => char.charCodeAt(0));
    const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
    return new Int8Array(await new Response(stream).arrayBuffer());
  }

  function model() { return data.models[state.model]; }
  function sentence() { return model().sentences[state.sentence]; }
  function kindInfo() { return model().kinds[state.kind]; }

  // One kind of one sentence: its levels, (layers, heads, queries, keys) flat, and the largest weight of each head.
  const cache = new Map();
  function weightsOf(sentence, kind) {
    const stored = sentence.kinds[kind];
    if (!cache.has(stored)) {
      cache.set(stored, inflate(stored.levels).then((levels) => ({ levels, top: stored.top })));
    }
    return cache.get(stored);
  }

  function sizes(sentence, kind) {
    const source = sentence.source.length;
    const target = sentence.target.length;
    return { queries: kind === "encoder" ? source : target, keys: kind === "decoder" ? target : source };
  }

  function visible(kind, row, column) { return kind !== "decoder" || column <= row; }

  function head(weights, info, size, layer, index) {
    const from = (layer * info.heads + index) * size.queries * size.keys;
    const top = weights.top[layer * info.heads + index];
    const values = new Float64Array(size.queries * size.keys);
    for (let i = 0; i < values.length; i++) {
      const level = weights.levels[from + i];
      values[i] = (Math.sign(level) * top * level * level) / (LEVELS * LEVELS);
    }
    return values;
  }

  function layerMean(weights, info, size, layer) {
    const mean = new Float64Array(size.queries * size.keys);
    for (let index = 0; index < info.heads; index++) {
      head(weights, info, size, layer, index).forEach((value, i) => { mean[i] += value / info.heads; });
    }
    return mean;
  }

  // ---- tokens, words, and the matrix that is shown -----------------------------------------------------------------

  function inputs(tokens) { return ["</s>"].concat(tokens.slice(0, -1)); }
  function inputWords(words) { return [-1].concat(words.slice(0, -1)); }

  // Tokens of an axis with the word each is of: {tokens, words, text}
  function axes(sentence) {
    const source = { tokens: sentence.source, words: sentence.source_words, text: sentence.source_text };
    const target = { tokens: sentence.target, words: sentence.target_words, text: sentence.target_text };
    const before = { tokens: inputs(target.tokens), words: inputWords(target.words), text: target.text };
    const query = state.input ? before : target;
    if (state.kind === "encoder") return { rows: source, columns: source };
    return { rows: query, columns: state.kind === "decoder" ? before : source };
  }

  // The pieces that make one row or column: each by itself, or all of a word.
  function groups(axis) {
    const found = [];
    axis.tokens.forEach((token, index) => {
      const word = axis.words[index];
      const last = found[found.length - 1];
      if (state.words && word >= 0 && last && last.word === word) last.members.push(index);
      else found.push({ word, members: [index], label: state.words && word >= 0 ? axis.text[word] : token });
    });
    return found;
  }

  function matrix(values, size, rows, columns) {
    const cells = rows.map((row) => columns.map((column) => {
      let total = 0, seen = false, zero = true;
      for (const t of row.members) {
        for (const s of column.members) {
          if (!visible(state.kind, t, s)) continue;
          seen = true;
          const value = values[t * size.keys + s];
          if (value !== 0) zero = false;
          total += value / row.members.length;
        }
      }
      return { value: total, seen, zero };
    }));
    const nulls = cells.map((row) => row.every((cell) => !cell.seen || cell.zero));
    let top = 0;
    for (const row of cells) for (const cell of row) top = Math.max(top, Math.abs(cell.value));
    return { cells, nulls, top };
  }

  function goldAt(row, column) {
    const gold = sentence().gold;
    if (!gold || !state.gold || state.kind !== "cross" || row.word < 0 || column.word < 0) return null;
    const key = column.word + "-" + row.word;
    if (!gold.index) gold.index = { sure: new Set(gold.sure), possible: new Set(gold.possible) };
    return gold.index.sure.has(key) ? "sure" : gold.index.possible.has(key) ? "possible" : null;
  }

  // ---- painting ------------------------------------------------------------------------------------------------

  function mix(from, to, share) { return from.map((value, i) => Math.round(value + (to[i] - value) * share)); }

  // Both scales begin well away from white: a small weight never looks like a zero.
  function colour(value, top) {
    const share = top ? Math.sqrt(Math.abs(value) / top) : 0;
    return value < 0 ? mix([253, 208, 177], [127, 39, 4], share) : mix([205, 224, 242], [8, 48, 107], share);
  }
  function css(rgb) { return "rgb(" + rgb.join(",") + ")"; }

  function shortened(text) {
    const chars = Array.from(text);
    return chars.length > LONGEST_LABEL ? chars.slice(0, LONGEST_LABEL - 1).join("") + "…" : text;
  }

  function hatch(context, x, y, width, height) {
    context.save();
    context.beginPath();
    context.rect(x, y, width, height);
    context.clip();
    context.strokeStyle = COLOURS.nullLine;
    context.lineWidth = 1;
    context.beginPath();
    for (let at = x - height; at < x + width; at += 6) {
      context.moveTo(at, y + height);
      context.lineTo(at + height, y);
    }
    context.stroke();
    context.restore();
  }

  function paint(rows, columns, made) {
    const context = canvas.getContext("2d");
    const font = "13px system-ui, sans-serif";
    context.font = font;
    const width = (group) => Math.min(context.measureText(shortened(group.label)).width, 170);
    const left = Math.ceil(Math.max(60, ...rows.map(width))) + 34;
    const above = Math.ceil(Math.max(40, ...columns.map(width))) + 10;
    const room = Math.max(300, element("map-box").clientWidth - left - 20);
    const cell = Math.max(12, Math.min(30, Math.floor(room / Math.max(columns.length, 1))));
    const ratio = window.devicePixelRatio || 1;
    const full = { width: left + cell * columns.length + 2, height: above + cell * rows.length + 2 };
    canvas.width = full.width * ratio;
    canvas.height = full.height * ratio;
    canvas.style.width = full.width + "px";
    canvas.style.height = full.height + "px";
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    context.clearRect(0, 0, full.width, full.height);
    context.font = font;
    context.fillStyle = "#222";
    context.textBaseline = "middle";
    columns.forEach((column, s) => {
      context.save();
      context.translate(left + s * cell + cell / 2, above - 5);
      context.rotate(-Math.PI / 2);
      context.textAlign = "left";
      context.fillText(shortened(column.label), 0, 0, 170);
      context.restore();
    });
    rows.forEach((row, t) => {
      const y = above + t * cell;
      context.textAlign = "right";
      context.fillStyle = made.nulls[t] ? "#8a6d00" : "#222";
      context.fillText(shortened(row.label), left - 26, y + cell / 2, 170);
      if (made.nulls[t]) context.fillText("∅", left - 8, y + cell / 2);
      columns.forEach((column, s) => {
        const value = made.cells[t][s];
        const x = left + s * cell;
        context.fillStyle = !value.seen ? COLOURS.hidden : made.nulls[t] ? COLOURS.null
          : value.zero ? COLOURS.zero : css(colour(value.value, made.top));
        context.fillRect(x, y, cell, cell);
        context.strokeStyle = "#e2e2e2";
        context.lineWidth = 1;
        context.strokeRect(x + 0.5, y + 0.5, cell - 1, cell - 1);
      });
      if (made.nulls[t]) {
        const seen = made.cells[t].filter((value) => value.seen).length;
        hatch(context, left, y, seen * cell, cell);
      }
    });
    rows.forEach((row, t) => columns.forEach((column, s) => {
      const link = goldAt(row, column);
      if (!link) return;
      context.strokeStyle = COLOURS.sure;
      context.lineWidth = 2;
      context.setLineDash(link === "sure" ? [] : [3, 2]);
      context.strokeRect(left + s * cell + 2, above + t * cell + 2, cell - 4, cell - 4);
      context.setLineDash([]);
    }));
    shown = { rows, columns, made, left, above, cell };
  }

  function rates(weights, info, size, layer, index) {
    const from = (layer * info.heads + index) * size.queries * size.keys;
    let zeros = 0, seen = 0, nulls = 0;
    for (let t = 0; t < size.queries; t++) {
      let nothing = true;
      for (let s = 0; s < size.keys; s++) {
        if (!visible(state.kind, t, s)) continue;
        seen++;
        if (weights.levels[from + t * size.keys + s] === 0) zeros++;
        else nothing = false;
      }
      if (nothing) nulls++;
    }
    return { null: nulls / Math.max(size.queries, 1), zero: zeros / Math.max(seen, 1) };
  }

  function percent(share) { return Math.round(100 * share) + "%"; }

  function thumbnail(target, values, size) {
    target.width = size.keys;
    target.height = size.queries;
    const context = target.getContext("2d");
    const image = context.createImageData(size.keys, size.queries);
    let top = 0;
    for (const value of values) top = Math.max(top, Math.abs(value));
    for (let t = 0; t < size.queries; t++) {
      const nothing = values.subarray(t * size.keys, (t + 1) * size.keys)
        .every((value, s) => value === 0 || !visible(state.kind, t, s));
      for (let s = 0; s < size.keys; s++) {
        const i = t * size.keys + s;
        const rgb = !visible(state.kind, t, s) ? [236, 236, 236] : nothing ? [246, 227, 180]
          : values[i] === 0 ? [255, 255, 255] : colour(values[i], top);
        image.data.set([...rgb, 255], 4 * i);
      }
    }
    context.putImageData(image, 0, 0);
  }

  function overview(weights, info, size) {
    const box = element("overview");
    box.textContent = "";
    info.layers.forEach((number, layer) => {
      const line = document.createElement("div");
      line.className = "heads";
      const name = document.createElement("span");
      name.className = "layer";
      name.textContent = "layer " + number;
      line.appendChild(name);
      for (let index = 0; index < info.heads; index++) {
        const here = rates(weights, info, size, layer, index);
        const tile = document.createElement("button");
        tile.type = "button";
        tile.className = "head";
        tile.dataset.layer = layer;
        tile.dataset.head = index;
        tile.dataset.null = here.null;
        tile.dataset.zero = here.zero;
        tile.title = "layer " + number + ", head " + index + ". This sentence: null " + percent(here.null) + ", zero "
          + percent(here.zero) + ". Corpus: null " + percent(info.null_rate_heads[layer][index]) + ", zero "
          + percent(info.sparsity_heads[layer][index]) + ".";
        const picture = document.createElement("canvas");
        thumbnail(picture, head(weights, info, size, layer, index), size);
        const text = document.createElement("span");
        text.textContent = "∅ " + percent(here.null) + "  0 " + percent(here.zero);
        tile.append(picture, text);
        tile.addEventListener("click", () => { state.layer = layer; state.head = index; draw(); });
        line.appendChild(tile);
      }
      box.appendChild(line);
    });
  }

  function mark() {
    for (const tile of document.querySelectorAll("#overview .head")) {
      const chosen = Number(tile.dataset.layer) === state.layer
        && (state.head < 0 || Number(tile.dataset.head) === state.head);
      tile.classList.toggle("chosen", chosen);
    }
  }

  // ---- controls ------------------------------------------------------------------------------------------------

  function options(select, labels, chosen) {
    select.textContent = "";
    labels.forEach(([value, text]) => {
      const option = document.createElement("option");
      option.value = value;
      option.textContent = text;
      select.appendChild(option);
    });
    select.value = String(chosen);
  }

  function clamp() {
    const bound = (value, count) => Math.max(0, Math.min(value, count - 1));
    state.model = bound(state.model, data.models.length);
    state.sentence = bound(state.sentence, model().sentences.length);
    if (!kindInfo()) state.kind = Object.keys(model().kinds).pop();
    state.layer = bound(state.layer, kindInfo().layers.length);
    state.head = Math.max(-1, Math.min(state.head, kindInfo().heads - 1));
  }

  function words(tokens) { return tokens.map((text) => "\u2068" + text + "\u2069").join(" "); }

  function fill() {
    options(element("model"), data.models.map((each, i) => [i, each.name]), state.model);
    options(element("sentence"), model().sentences.map((each, i) => [
      i, each.id + ": " + shortened(each.target_text.join(" ")),
    ]), state.sentence);
    options(element("kind"), Object.keys(model().kinds).map((kind) => [kind, kind + " (" + HINTS[kind] + ")"]),
      state.kind);
    options(element("layer"), kindInfo().layers.map((number, i) => [i, number]), state.layer);
    const heads = [[-1, "mean"]];
    for (let index = 0; index < kindInfo().heads; index++) heads.push([index, index]);
    options(element("head"), heads, state.head);
    for (const name of ["words", "gold", "input"]) element(name).checked = state[name];
    element("gold").disabled = !sentence().gold || state.kind !== "cross";
    element("input").disabled = state.kind === "encoder";
    element("source-text").textContent = words(sentence().source_text);
    element("target-text").textContent = words(sentence().target_text);
  }

  let drawn = ""; // what the overview shows
  async function draw() {
    const call = ++drawing;
    clamp();
    fill();
    const [here, info, size] = [sentence(), kindInfo(), sizes(sentence(), state.kind)];
    const weights = await weightsOf(here, state.kind);
    if (call !== drawing) return;
    const values = state.head < 0 ? layerMean(weights, info, size, state.layer)
      : head(weights, info, size, state.layer, state.head);
    const both = axes(here);
    const [rows, columns] = [groups(both.rows), groups(both.columns)];
    paint(rows, columns, matrix(values, size, rows, columns));
    const key = [state.model, state.sentence, state.kind].join("/");
    if (key !== drawn) overview(weights, info, size);
    drawn = key;
    mark();
    const nulls = shown.made.nulls.filter(Boolean).length;
    element("status").textContent = info.attention + ", " + state.kind + ", layer " + info.layers[state.layer] + ", "
      + (state.head < 0 ? "mean of heads" : "head " + state.head) + ": " + nulls + " of " + rows.length + " rows null, "
      + "largest weight " + shown.made.top.toPrecision(3);
    element("readout").textContent = "Point at a cell to read it.";
    canvas.dataset.ready = String(call);
  }

  function cellAt(event) {
    const box = canvas.getBoundingClientRect();
    const column = Math.floor((event.clientX - box.left - shown.left) / shown.cell);
    const row = Math.floor((event.clientY - box.top - shown.above) / shown.cell);
    return shown.made.cells[row] && shown.made.cells[row][column] ? [row, column] : null;
  }

  function read(event) {
    if (!shown) return;
    const at = cellAt(event);
    if (!at) return;
    const [row, column] = [shown.rows[at[0]], shown.columns[at[1]]];
    const cell = shown.made.cells[at[0]][at[1]];
    const link = goldAt(row, column);
    const value = !cell.seen ? "hidden: it lies in the future" : shown.made.nulls[at[0]] ? "null row: attends to nothing"
      : cell.zero ? "exactly 0" : "≈ " + cell.value.toPrecision(2);
    element("readout").textContent = words([row.label]) + " → " + words([column.label]) + ": " + value
      + (link ? " (gold: " + link + ")" : "");
  }

  function cycleKind() {
    const kinds = Object.keys(model().kinds);
    state.kind = kinds[(kinds.indexOf(state.kind) + 1) % kinds.length];
  }

  const keys = {
    ArrowRight: () => { state.sentence++; },
    ArrowLeft: () => { state.sentence--; },
    ArrowUp: () => { state.layer++; },
    ArrowDown: () => { state.layer--; },
    ".": () => { state.head++; },
    ",": () => { state.head--; },
    m: () => { state.head = -1; },
    k: cycleKind,
    w: () => { state.words = !state.words; },
    g: () => { state.gold = !state.gold; },
    i: () => { state.input = !state.input; },
  };

  function start() {
    if (!data.models.length) return;
    if (typeof DecompressionStream === "undefined") {
      element("status").textContent = "The explorer needs a browser of 2023 or later.";
      return;
    }
    for (const name of ["model", "sentence", "layer", "head"]) {
      element(name).addEventListener("change", (event) => { state[name] = Number(event.target.value); draw(); });
    }
    element("kind").addEventListener("change", (event) => { state.kind = event.target.value; draw(); });
    for (const name of ["words", "gold", "input"]) {
      element(name).addEventListener("change", (event) => { state[name] = event.target.checked; draw(); });
    }
    const box = element("explorer");
    box.addEventListener("keydown", (event) => {
      const typing = event.target.tagName === "SELECT";
      if (typing || event.ctrlKey || event.altKey || event.metaKey || !(event.key in keys)) return;
      event.preventDefault();
      keys[event.key]();
      draw();
    });
    canvas.addEventListener("mousemove", read);
    canvas.addEventListener("click", (event) => { box.focus({ preventScroll: true }); read(event); });
    window.addEventListener("resize", draw);
    state.layer = Infinity;
    draw();
  }

  start();
})();
