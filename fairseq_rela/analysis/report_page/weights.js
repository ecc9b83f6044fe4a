// Weights: unpacking them, one head, the mean of a layer's heads, and the rates of a head.

const LEVELS = 127;
const HINTS = { encoder: "source → source", decoder: "target → target so far", cross: "target → source" };

async function inflate(base64) {
  const bytes = Uint8Array.from(atob(base64), (char) => char.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
  return new Int8Array(await new Response(stream).arrayBuffer());
}

// One kind of one sentence: its levels, (layers, heads, queries, keys) flat, and the largest weight of each head.
const unpacked = new WeakMap();
function weightsOf(sentence, kind, norms) {
  const stored = ((norms && sentence.norms) || sentence.kinds)[kind];
  if (!unpacked.has(stored)) {
    unpacked.set(stored, inflate(stored.levels).then((levels) => ({ levels, top: stored.top })));
  }
  return unpacked.get(stored);
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

// The share of null rows and of zero weights of one head in one sentence.
function ratesOf(weights, info, size, kind, layer, index) {
  const from = (layer * info.heads + index) * size.queries * size.keys;
  let zeros = 0, seen = 0, nulls = 0;
  for (let t = 0; t < size.queries; t++) {
    let nothing = true;
    for (let s = 0; s < size.keys; s++) {
      if (!visible(kind, t, s)) continue;
      seen++;
      if (weights.levels[from + t * size.keys + s] === 0) zeros++;
      else nothing = false;
    }
    if (nothing) nulls++;
  }
  return { null: nulls / Math.max(size.queries, 1), zero: zeros / Math.max(seen, 1) };
}

// The same of every head: [layer][head].
function allRates(weights, info, size, kind) {
  return info.layers.map((_, layer) => Array.from({ length: info.heads },
    (__, index) => ratesOf(weights, info, size, kind, layer, index)));
}

function percent(share) { return Math.round(100 * share) + "%"; }
