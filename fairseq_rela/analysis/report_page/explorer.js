// The explorer: its state, its controls and what they draw. Takes its data from the page itself, and on a live page
// from the server. Every word is set as text, never as markup.

const data = JSON.parse(document.getElementById("explorer-data").textContent);
const state = {
  model: 0, sentence: 0, beside: "", kind: "cross", layer: Infinity, head: -1,
  words: false, gold: true, input: false, norms: false, view: "map",
};
const PANELS = [["map", "status", "head-maps"], ["map2", "status2", "head-maps2"]];
const element = (id) => document.getElementById(id);
let shown = []; // what is on the screen: one {canvas, view, layout} for each panel
let drawing = 0; // numbers the calls of `draw`, so that a slow one does not paint over a later one
let pointed = { panel: 0 }; // the row, the column or both under the pointer

function painter() { return state.view === "lines" ? lineView : heatMap; }
function model() { return data.models[state.model]; }
function sentence() { return model().sentences[state.sentence]; }
function kindInfo() { return model().kinds[state.kind]; }

// ---- what to show ---------------------------------------------------------------------------------------------------

// The model and the sentence of the second panel, or null. `beside` is "MODEL:same" or "MODEL:SENTENCE".
function besideChoice() {
  const match = /^(\d{1,4}):(same|\d{1,6})$/.exec(state.beside);
  const other = match && data.models[Number(match[1])];
  if (!other || !other.kinds[state.kind]) return null;
  const number = match[2] === "same" ? state.sentence : Number(match[2]);
  return other.sentences[number] ? { model: other, sentence: other.sentences[number] } : null;
}

function besideOptions() {
  const options = [["", "nothing"]];
  data.models.forEach((each, i) => {
    if (i !== state.model) options.push([i + ":same", each.name]);
    if (data.live && state.sentence > 0 && !data.live.language_model) {
      options.push([i + ":0", (data.models.length > 1 ? each.name + ", " : "") + "best translation"]);
    }
  });
  return options;
}

async function viewOf({ model, sentence }) {
  const info = model.kinds[state.kind], size = sizes(sentence, state.kind);
  const layer = Math.min(state.layer, info.layers.length - 1), index = Math.min(state.head, info.heads - 1);
  const weights = await weightsOf(sentence, state.kind, state.norms);
  const values = index < 0 ? layerMean(weights, info, size, layer) : head(weights, info, size, layer, index);
  const both = axes(sentence, state.kind, state.input);
  const rows = groups(both.rows, state.words), columns = groups(both.columns, state.words);
  const withGold = sentence.gold && state.gold && state.kind === "cross";
  const place = state.kind + ", layer " + info.layers[layer] + ", " + (index < 0 ? "mean of heads" : "head " + index);
  return {
    model, sentence, info, size, weights, rows, columns, place, title: model.name + ": " + place,
    made: matrix(values, size, state.kind, rows, columns), rates: allRates(weights, info, size, state.kind),
    gold: (row, column) => (withGold ? goldLink(sentence, row, column) : null),
  };
}

// Whose attention it is: the model, and on a page with labels which sentence, translation or target.
function owner(view) {
  const { label, forced } = view.sentence;
  const numbered = (data.live ? "translation " : "sentence ") + label;
  return view.model.name + (!label ? "" : ", " + (forced ? "your target" : label === "text" ? "text" : numbered)) + ": ";
}

function described(view) {
  const nulls = view.made.nulls.filter(Boolean).length;
  return view.place + " (" + view.info.attention + "): " + percent(view.made.zeros) + " of weights exactly 0, " + nulls + " of "
    + view.rows.length + " rows null, largest " + (state.norms ? "norm " : "weight ") + view.made.top.toPrecision(3);
}

// ---- drawing --------------------------------------------------------------------------------------------------------

function paint(panel, at) {
  const { canvas, view, layout } = panel;
  const ratio = window.devicePixelRatio || 1;
  canvas.width = layout.width * ratio;
  canvas.height = layout.height * ratio;
  canvas.style.width = layout.width + "px";
  canvas.style.height = layout.height + "px";
  const context = canvas.getContext("2d");
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  painter().paint(canvasSurface(context), view, layout, at);
}

async function draw() {
  const call = ++drawing;
  if (!data.models[0].sentences.length) return; // a live page before its first sentence
  clamp();
  fill();
  const other = besideChoice();
  const views = await Promise.all([{ model: model(), sentence: sentence() }, ...(other ? [other] : [])].map(viewOf));
  if (call !== drawing) return;
  element("panel2").hidden = views.length < 2;
  shown = views.map((view, i) => {
    const canvas = element(PANELS[i][0]);
    const panel = { canvas, view, layout: painter().layout(view, canvas.parentElement.clientWidth) };
    paint(panel, {});
    element(PANELS[i][1]).textContent = (views.length > 1 ? owner(view) : "") + described(view);
    headMaps(element(PANELS[i][2]), view);
    return panel;
  });
  overview(element("overview"), views[0]);
  markHeads();
  element("readout").textContent = "Point at a word or a cell to read it.";
  element("link").href = fragment();
  element("map").dataset.ready = String(call);
}

function point(panel, event) {
  if (!shown[panel]) return;
  const { canvas, view, layout } = shown[panel];
  const box = canvas.getBoundingClientRect();
  const at = event.type === "mouseleave" ? {} : painter().at(view, layout, event.clientX - box.left, event.clientY - box.top);
  if (pointed.panel === panel && pointed.row === at.row && pointed.column === at.column) return;
  pointed = { panel, ...at };
  paint(shown[panel], at);
  if (at.row !== undefined || at.column !== undefined) element("readout").textContent = told(view, at);
}

// ---- controls -------------------------------------------------------------------------------------------------------

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
  if (!Object.prototype.hasOwnProperty.call(model().kinds, state.kind)) state.kind = Object.keys(model().kinds).pop();
  state.layer = bound(state.layer, kindInfo().layers.length);
  state.head = Math.max(-1, Math.min(state.head, kindInfo().heads - 1));
  if (!besideOptions().some(([value]) => value === state.beside)) state.beside = "";
}

function fill() {
  options(element("model"), data.models.map((each, i) => [i, each.name]), state.model);
  options(element("sentence"), model().sentences.map((each, i) => [
    i, (each.label || each.id) + ": " + shortened(each.target_text.join(" ")),
  ]), state.sentence);
  options(element("kind"), Object.keys(model().kinds).map((kind) => [kind, kind + " (" + HINTS[kind] + ")"]), state.kind);
  options(element("layer"), kindInfo().layers.map((number, i) => [i, number]), state.layer);
  options(element("head"), [[-1, "mean"], ...Array.from({ length: kindInfo().heads }, (_, i) => [i, i])], state.head);
  options(element("beside"), besideOptions(), state.beside);
  element("view").value = state.view;
  for (const name of ["words", "gold", "input", "norms"]) element(name).checked = state[name];
  element("norms").parentElement.hidden = !sentence().norms;
  for (const each of [element("gold").parentElement, element("gold-legend")]) each.hidden = !sentence().gold;
  element("future-legend").hidden = state.kind !== "decoder";
  element("gold").disabled = state.kind !== "cross";
  element("input").disabled = state.kind === "encoder";
  element("source-line").hidden = !sentence().source.length;
  element("source-text").textContent = words(sentence().source_text);
  element("target-text").textContent = words(sentence().target_text);
}

function next(name) {
  const values = Array.from(element(name).options, (option) => option.value);
  return values[(values.indexOf(String(state[name])) + 1) % values.length];
}

const keys = {
  ArrowRight: () => { state.sentence++; },
  ArrowLeft: () => { state.sentence--; },
  ArrowUp: () => { state.layer++; },
  ArrowDown: () => { state.layer--; },
  ".": () => { state.head++; },
  ",": () => { state.head--; },
  m: () => { state.head = -1; },
  k: () => { state.kind = next("kind"); },
  l: () => { state.view = next("view"); },
  b: () => { state.beside = next("beside"); },
  w: () => { state.words = !state.words; },
  g: () => { state.gold = !state.gold; },
  i: () => { state.input = !state.input; },
};

function listen() {
  for (const name of ["model", "sentence", "layer", "head"]) {
    element(name).addEventListener("change", (event) => { state[name] = Number(event.target.value); draw(); });
  }
  for (const name of ["kind", "view", "beside"]) {
    element(name).addEventListener("change", (event) => { state[name] = event.target.value; draw(); });
  }
  for (const name of ["words", "gold", "input", "norms"]) {
    element(name).addEventListener("change", (event) => { state[name] = event.target.checked; draw(); });
  }
  const box = element("explorer");
  box.addEventListener("keydown", (event) => {
    const typing = event.target.tagName === "SELECT";
    if (typing || event.ctrlKey || event.altKey || event.metaKey || !Object.keys(keys).includes(event.key)) return;
    event.preventDefault();
    keys[event.key]();
    draw();
  });
  PANELS.forEach(([name], panel) => {
    for (const type of ["mousemove", "mouseleave"]) element(name).addEventListener(type, (event) => point(panel, event));
    element(name).addEventListener("click", (event) => { box.focus({ preventScroll: true }); point(panel, event); });
  });
  for (const extension of ["svg", "png"]) element("save-" + extension).addEventListener("click", () => save(extension));
  element("link").addEventListener("click", (event) => { event.preventDefault(); copyLink(); });
  window.addEventListener("resize", draw);
}

function start() {
  if (!data.models.length) return;
  if (typeof DecompressionStream === "undefined") {
    element("status").textContent = "The explorer needs a browser of 2023 or later.";
    return;
  }
  Object.assign(state, data.start || {});
  takeFragment();
  listen();
  window.addEventListener("hashchange", () => { if (fragmentValues()) { takeFragment(); draw(); } });
  draw();
}
