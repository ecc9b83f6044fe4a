// The live page: a form whose answers are the sentences of the explorer. The first ones are the model's own
// translations, best first; a target that the reader forces is the last.

let asked = 0; // numbers the requests, so that a late answer does not replace a later one

function busy(is) {
  for (const name of ["translate", "force"]) element(name).disabled = is;
  element("live").setAttribute("aria-busy", String(is));
}

function say(text, isError) {
  element("live-note").textContent = text;
  element("live-note").classList.toggle("error", Boolean(isError));
}

async function asking(request) {
  const response = await fetch("attention", {
    method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(request),
  });
  const answer = await response.json();
  if (!response.ok) throw new Error(answer.error);
  return answer;
}

// Ask for translations, and for the attention to `target` too if it is not empty.
async function translate(target) {
  const call = ++asked;
  const text = element("text").value;
  if (!text.trim()) { say("Type a sentence first.", true); return; }
  busy(true);
  say("translating …");
  try {
    const answer = await asking({ text, target, nbest: Number(element("nbest").value) });
    if (call !== asked) return;
    data.models.forEach((each, i) => { each.sentences = answer.models[i].sentences; });
    element("explorer").hidden = false;
    say(answer.note);
    showTarget(Boolean(target));
    await draw();
    hypotheses();
  } catch (error) {
    if (call === asked) say(error instanceof TypeError ? "The server does not answer. Is it still running?" : error.message, true);
  } finally {
    if (call === asked) busy(false);
  }
}

// A forced target is shown beside the model's own translation; else the best translation is shown.
function showTarget(forced) {
  const last = model().sentences.length - 1;
  if (forced) {
    state.sentence = last;
    if (!state.beside && last > 0) state.beside = state.model + ":0";
  } else {
    if (state.sentence > last || model().sentences[state.sentence].forced) state.sentence = 0;
    if (/:\d+$/.test(state.beside)) state.beside = "";
  }
}

// ---- the list of translations ---------------------------------------------------------------------------------------

function part(name, className, text) {
  const made = document.createElement(name);
  made.className = className;
  made.textContent = text;
  return made;
}

function rateKind(sentence) { return sentence.rates.cross ? "cross" : Object.keys(sentence.rates).pop(); }

function rateText(sentence) {
  const [nulls, zeros] = sentence.rates[rateKind(sentence)];
  return "null " + percent(nulls) + "  zeros " + percent(zeros);
}

function hypothesis(sentence, modelIndex, index) {
  const row = part("div", "hypothesis", "");
  const chooser = part("button", "chooser", "");
  chooser.type = "button";
  chooser.dataset.model = modelIndex;
  chooser.dataset.sentence = index;
  chooser.title = "Score: mean log probability of a token. Null rows and zero weights of all heads of " + rateKind(sentence) + " attention.";
  const text = part("span", "text", words(sentence.target_text));
  text.dir = "auto";
  chooser.append(part("span", "label", sentence.label), part("span", "score", sentence.score.toFixed(3)),
    part("span", "rates", rateText(sentence)), text);
  chooser.addEventListener("click", async () => {
    state.model = modelIndex;
    state.sentence = index;
    await draw();
    hypotheses();
  });
  row.appendChild(chooser);
  if (!data.live.language_model) {
    const edit = part("button", "edit", "edit");
    edit.type = "button";
    edit.title = "Copy this translation into the field below, to change it";
    edit.addEventListener("click", () => {
      element("target").value = sentence.target_plain;
      element("target").focus();
    });
    row.appendChild(edit);
  }
  row.classList.toggle("chosen", modelIndex === state.model && index === state.sentence);
  return row;
}

function hypotheses() {
  const box = element("hypotheses");
  box.textContent = "";
  data.models.forEach((each, modelIndex) => {
    const list = part("section", "", "");
    if (data.models.length > 1) list.appendChild(part("h3", "", each.name));
    each.sentences.forEach((sentence, index) => list.appendChild(hypothesis(sentence, modelIndex, index)));
    box.appendChild(list);
  });
}

function startLive() {
  linkedText = () => {
    const forced = model().sentences.length && model().sentences.some((each) => each.forced);
    return { text: element("text").value, ...(forced ? { target: element("target").value } : {}) };
  };
  element("live").addEventListener("submit", (event) => { event.preventDefault(); translate(""); });
  element("text").addEventListener("keydown", (event) => {
    if (event.key === "Enter" && !event.shiftKey) { event.preventDefault(); translate(""); }
  });
  element("target").addEventListener("keydown", (event) => {
    if (event.key === "Enter" && !event.shiftKey) { event.preventDefault(); element("force").click(); }
  });
  element("force").addEventListener("click", () => {
    if (element("target").value.trim()) translate(element("target").value);
    else say("Type a target first, or take a translation with “edit”.", true);
  });
  for (const name of ["target-line", "nbest-line"]) element(name).hidden = data.live.language_model;
  if (data.live.language_model) element("translate").textContent = "Show attention";
  element("explorer").hidden = true;
  for (const name of ["text", "target"]) element(name).maxLength = data.live.most_characters;
  if (data.models.length > 1) {
    state.beside = "1:same";
    element("target-note").textContent = "Both models read your target instead of their own translations. "
      + "To see it beside a translation, choose “best translation” at “beside”.";
  }
  takeLiveFragment();
  window.addEventListener("hashchange", takeLiveFragment);
}

function takeLiveFragment() {
  const values = fragmentValues();
  if (!values || !values.has("text")) return;
  const [text, target] = ["text", "target"].map((name) => (values.get(name) || "").slice(0, data.live.most_characters));
  if (text === element("text").value && target === element("target").value && sentence()) return; // only the view changed
  element("text").value = text;
  element("target").value = target;
  translate(target).then(async () => {
    takeFragment(); // what the link says, after what a new sentence changes
    await draw();
    hypotheses();
  });
}
