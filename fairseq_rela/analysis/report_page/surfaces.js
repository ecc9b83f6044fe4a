// Two surfaces to draw on with the same five strokes: a canvas (screen and PNG) and an SVG element (export).

const COLOURS = {
  zero: "#ffffff", hidden: "#ececec", null: "#f6e3b4", nullLine: "#c9a227", nullText: "#8a6d00", sure: "#00875a",
  text: "#222", grid: "#e2e2e2", marked: "#d55e00",
};
const FONT = "13px system-ui, 'Segoe UI', 'DejaVu Sans', sans-serif";
const WIDEST_LABEL = 170;

function mix(from, to, share) { return from.map((value, i) => Math.round(value + (to[i] - value) * share)); }

function share(value, top) { return top ? Math.sqrt(Math.abs(value) / top) : 0; }

// Both scales begin well away from white: a small weight never looks like a zero.
function colour(value, top) {
  return value < 0 ? mix([253, 208, 177], [127, 39, 4], share(value, top))
    : mix([205, 224, 242], [8, 48, 107], share(value, top));
}

function css(rgb) { return "rgb(" + rgb.join(",") + ")"; }

const measuring = document.createElement("canvas").getContext("2d");
function textWidth(text, font) {
  measuring.font = font || FONT;
  return Math.min(measuring.measureText(text).width, WIDEST_LABEL);
}

function canvasSurface(context) {
  return {
    rect(x, y, width, height, fill) {
      context.fillStyle = fill;
      context.fillRect(x, y, width, height);
    },
    frame(x, y, width, height, stroke, lineWidth, dash) {
      context.strokeStyle = stroke;
      context.lineWidth = lineWidth;
      context.setLineDash(dash || []);
      context.strokeRect(x, y, width, height);
      context.setLineDash([]);
    },
    hatch(x, y, width, height) {
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
    },
    text(text, x, y, { anchor = "left", fill = COLOURS.text, up = false, bold = false, wide = WIDEST_LABEL } = {}) {
      context.save();
      context.translate(x, y);
      if (up) context.rotate(-Math.PI / 2);
      context.font = (bold ? "bold " : "") + FONT;
      context.fillStyle = fill;
      context.textAlign = anchor;
      context.textBaseline = "middle";
      context.fillText(text, 0, 0, wide);
      context.restore();
    },
    curve(x, y, toX, toY, stroke, lineWidth, opacity) {
      const middle = (x + toX) / 2;
      context.globalAlpha = opacity;
      context.strokeStyle = stroke;
      context.lineWidth = lineWidth;
      context.beginPath();
      context.moveTo(x, y);
      context.bezierCurveTo(middle, y, middle, toY, toX, toY);
      context.stroke();
      context.globalAlpha = 1;
    },
  };
}

const SVG = ["http", "//www.w3.org/2000/svg"].join(":"); // a name, not an address: nothing is fetched

// XML has no control characters and no halves of surrogate pairs.
function xmlText(text) {
  return Array.from(text, (char) => (/[\u0000-\u0008\u000b\u000c\u000e-\u001f\ud800-\udfff\ufffe\uffff]/.test(char)
    && char.length === 1 ? "\ufffd" : char)).join("");
}

function svgSurface(width, height) {
  const root = document.createElementNS(SVG, "svg");
  const add = (name, attributes, text) => {
    const made = document.createElementNS(SVG, name);
    for (const [key, value] of Object.entries(attributes)) {
      made.setAttribute(key, typeof value === "number" ? String(Math.round(value * 100) / 100) : value);
    }
    if (text !== undefined) made.textContent = xmlText(text);
    root.appendChild(made);
  };
  for (const [key, value] of Object.entries({ width, height, viewBox: `0 0 ${width} ${height}` })) {
    root.setAttribute(key, value);
  }
  add("rect", { x: 0, y: 0, width, height, fill: "#fff" });
  return {
    root,
    rect(x, y, w, h, fill) { if (fill !== COLOURS.zero) add("rect", { x, y, width: w, height: h, fill }); },
    frame(x, y, w, h, stroke, lineWidth, dash) {
      add("rect", {
        x, y, width: w, height: h, fill: "none", stroke, "stroke-width": lineWidth, "stroke-dasharray": (dash || []).join(" ") || "none",
      });
    },
    hatch(x, y, w, h) {
      for (let at = x - h + 6; at < x + w; at += 6) { // cut to the box by hand: no clip path is needed
        const from = Math.max(at, x), to = Math.min(at + h, x + w);
        add("line", { x1: from, y1: y + h - (from - at), x2: to, y2: y + h - (to - at), stroke: COLOURS.nullLine });
      }
    },
    text(text, x, y, { anchor = "left", fill = COLOURS.text, up = false, bold = false, wide = WIDEST_LABEL } = {}) {
      const font = (bold ? "bold " : "") + FONT;
      measuring.font = font;
      const squeezed = measuring.measureText(text).width > wide ? { textLength: wide, lengthAdjust: "spacingAndGlyphs" } : {};
      add("text", {
        x, y, fill, style: "font: " + font, "text-anchor": { left: "start", right: "end", center: "middle" }[anchor],
        "dominant-baseline": "central", ...(up ? { transform: `rotate(-90 ${x} ${y})` } : {}), ...squeezed,
      }, text);
    },
    curve(x, y, toX, toY, stroke, lineWidth, opacity) {
      const middle = (x + toX) / 2;
      add("path", {
        d: `M${x} ${y}C${middle} ${y} ${middle} ${toY} ${toX} ${toY}`, fill: "none", stroke, "stroke-width": lineWidth,
        "stroke-opacity": opacity,
      });
    },
  };
}
