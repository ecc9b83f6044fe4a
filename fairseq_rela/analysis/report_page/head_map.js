// All heads of a sentence: two small maps of their rates, and a thumbnail of each head. A click chooses a head.

function choosingHead(button, layer, index) {
  button.type = "button";
  button.dataset.layer = layer;
  button.dataset.head = index;
  button.addEventListener("click", () => { state.layer = layer; state.head = index; draw(); });
  return button;
}

function headTitle(info, layer, index, rates) {
  const corpus = !info.null_rate_heads ? "" : " Corpus: null " + percent(info.null_rate_heads[layer][index]) + ", zero "
    + percent(info.sparsity_heads[layer][index]) + ".";
  return "layer " + info.layers[layer] + ", head " + index + ". This sentence: null " + percent(rates.null) + ", zero "
    + percent(rates.zero) + "." + corpus;
}

const RATES = [["null", "∅ null rows, all heads", [255, 250, 235], [201, 122, 0]], ["zero", "zero weights, all heads", [255, 255, 255], [60, 90, 120]]];

// Layers down, heads across, one map for each rate.
function headMaps(box, view) {
  box.textContent = "";
  for (const [name, title, from, to] of RATES) {
    const map = document.createElement("div");
    map.className = "head-map";
    const caption = document.createElement("span");
    const every = view.rates.flat().map((rates) => rates[name]);
    caption.textContent = title + ": " + percent(every.reduce((sum, rate) => sum + rate, 0) / every.length);
    map.appendChild(caption);
    view.rates.forEach((line, layer) => {
      const row = document.createElement("div");
      line.forEach((rates, index) => {
        const cell = choosingHead(document.createElement("button"), layer, index);
        cell.className = "head-cell";
        cell.dataset.rate = rates[name];
        cell.title = headTitle(view.info, layer, index, rates);
        cell.setAttribute("aria-label", cell.title);
        cell.style.background = css(mix(from, to, name === "null" ? Math.sqrt(rates[name]) : rates[name])); // a few nulls show
        row.appendChild(cell);
      });
      map.appendChild(row);
    });
    box.appendChild(map);
  }
}

function thumbnail(target, values, size, kind) {
  target.width = size.keys;
  target.height = size.queries;
  const context = target.getContext("2d");
  const image = context.createImageData(size.keys, size.queries);
  let top = 0;
  for (const value of values) top = Math.max(top, Math.abs(value));
  for (let t = 0; t < size.queries; t++) {
    const nothing = values.subarray(t * size.keys, (t + 1) * size.keys)
      .every((value, s) => value === 0 || !visible(kind, t, s));
    for (let s = 0; s < size.keys; s++) {
      const i = t * size.keys + s;
      const rgb = !visible(kind, t, s) ? [236, 236, 236] : nothing ? [246, 227, 180]
        : values[i] === 0 ? [255, 255, 255] : colour(values[i], top);
      image.data.set([...rgb, 255], 4 * i);
    }
  }
  context.putImageData(image, 0, 0);
}

function overview(box, view) {
  box.textContent = "";
  view.info.layers.forEach((number, layer) => {
    const line = document.createElement("div");
    line.className = "heads";
    const name = document.createElement("span");
    name.className = "layer";
    name.textContent = "layer " + number;
    line.appendChild(name);
    view.rates[layer].forEach((rates, index) => {
      const tile = choosingHead(document.createElement("button"), layer, index);
      tile.className = "head";
      tile.dataset.null = rates.null;
      tile.dataset.zero = rates.zero;
      tile.title = headTitle(view.info, layer, index, rates);
      const picture = document.createElement("canvas");
      thumbnail(picture, head(view.weights, view.info, view.size, layer, index), view.size, state.kind);
      const text = document.createElement("span");
      text.textContent = "∅ " + percent(rates.null) + "  0 " + percent(rates.zero);
      tile.append(picture, text);
      line.appendChild(tile);
    });
    box.appendChild(line);
  });
}

function markHeads() {
  for (const tile of document.querySelectorAll(".head, .head-cell")) {
    const chosen = Number(tile.dataset.layer) === state.layer
      && (state.head < 0 || Number(tile.dataset.head) === state.head);
    tile.classList.toggle("chosen", chosen);
  }
}
