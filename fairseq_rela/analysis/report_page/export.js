// What leaves the page: the picture as SVG or PNG, and a link to what is shown.

const PNG_SCALE = 3; // pixels per unit: enough for print
const TITLE_HEIGHT = 26;

// Paint every view side by side, each under its title, on a surface that `surfaceOf(width, height)` makes.
function figure(surfaceOf) {
  const parts = shown.map((panel) => ({ ...panel, wide: Math.max(panel.layout.width, 260) }));
  const width = Math.ceil(parts.reduce((sum, part) => sum + part.wide + 16, 0));
  const height = Math.ceil(Math.max(...parts.map((part) => part.layout.height)) + TITLE_HEIGHT + 8);
  const surface = surfaceOf(width, height);
  let x = 8;
  for (const { view, layout, wide } of parts) {
    const moved = {
      rect: (left, top, ...rest) => surface.rect(x + left, TITLE_HEIGHT + top, ...rest),
      frame: (left, top, ...rest) => surface.frame(x + left, TITLE_HEIGHT + top, ...rest),
      hatch: (left, top, ...rest) => surface.hatch(x + left, TITLE_HEIGHT + top, ...rest),
      text: (text, left, top, ...rest) => surface.text(text, x + left, TITLE_HEIGHT + top, ...rest),
      curve: (left, top, toLeft, toTop, ...rest) => surface.curve(
        x + left, TITLE_HEIGHT + top, x + toLeft, TITLE_HEIGHT + toTop, ...rest),
    };
    surface.text(view.title, x, TITLE_HEIGHT / 2, { bold: true, wide });
    painter().paint(moved, view, layout, {});
    x += wide + 16;
  }
  return surface;
}

function svgText() {
  return new XMLSerializer().serializeToString(figure(svgSurface).root) + "\n";
}

function pngBlob() {
  const canvas = document.createElement("canvas");
  figure((width, height) => {
    canvas.width = width * PNG_SCALE;
    canvas.height = height * PNG_SCALE;
    const context = canvas.getContext("2d");
    context.setTransform(PNG_SCALE, 0, 0, PNG_SCALE, 0, 0);
    context.fillStyle = "#fff";
    context.fillRect(0, 0, width, height);
    return canvasSurface(context);
  });
  return new Promise((done) => { canvas.toBlob(done, "image/png"); });
}

async function save(extension) {
  if (!shown.length) return;
  const blob = extension === "svg" ? new Blob([svgText()], { type: "image/svg+xml" }) : await pngBlob();
  const anchor = document.createElement("a");
  const name = ["attention", state.kind, "layer" + state.layer, state.head < 0 ? "mean" : "head" + state.head, state.view];
  anchor.href = URL.createObjectURL(blob);
  anchor.download = name.join("-") + "." + extension;
  anchor.click();
  setTimeout(() => URL.revokeObjectURL(anchor.href), 10000);
  element("readout").textContent = "Saved as " + anchor.download;
}

// ---- links: the state of the page in the fragment of its address --------------------------------------------------

const LINKED = {
  numbers: ["model", "sentence", "layer", "head"], flags: ["words", "gold", "input", "norms"], texts: ["kind", "view", "beside"],
};
let linkedText = () => ({}); // what a live page adds: the sentence itself

function fragment() {
  const values = { ...linkedText() };
  for (const name of [...LINKED.texts, ...LINKED.numbers]) values[name] = String(state[name]);
  for (const name of LINKED.flags) values[name] = state[name] ? "1" : "0";
  return "#" + new URLSearchParams(values);
}

// The values in the address, or null if it has none. Anything may be in it: only known names are read.
function fragmentValues() {
  return location.hash.includes("=") ? new URLSearchParams(location.hash.slice(1)) : null;
}

function takeFragment() {
  const values = fragmentValues();
  if (!values) return;
  for (const name of LINKED.numbers) {
    if (/^-?\d{1,6}$/.test(values.get(name) || "")) state[name] = Number(values.get(name));
  }
  for (const name of LINKED.flags) if (values.has(name)) state[name] = values.get(name) === "1";
  if (values.has("kind")) state.kind = values.get("kind");
  if (values.has("view")) state.view = values.get("view") === "lines" ? "lines" : "map";
  if (values.has("beside")) state.beside = values.get("beside");
}

async function copyLink() {
  history.replaceState(null, "", fragment());
  try {
    await navigator.clipboard.writeText(location.href);
    element("readout").textContent = "The link to this view is copied.";
  } catch (error) { // a page opened from a file may not copy
    element("readout").textContent = "The link to this view is in the address bar.";
  }
}
