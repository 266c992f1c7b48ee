// The model of the next messages: a field that suggests all models when it is entered, also where one is chosen already.
import { html, memo, useState } from "../ui.js";
import { t } from "../strings.js";
import { app, useStore } from "../store.js";

// A provider may have hundreds of models, so they are drawn once.
const ModelNames = memo(function ModelNames({ models, providers }) {
  const more = providers.flatMap((each) => each.models);
  return html`<datalist id="models">${models.map((each) => html`<option value=${each.name}>${each.label}</option>`)}${more.map((name) => html`<option value=${name} />`)}</datalist>`;
});

// `chosen` is empty for the model `usual`. Browsers suggest what has the text of the field, so that it is empty at first:
// what is chosen stands in it in grey, and stays if nothing is typed. Delete takes it away.
export function ModelField({ chosen, usual, onChoose }) {
  const [text, setText] = useState(null);
  const { models, providers } = useStore(app);
  const type = (value) => { setText(value); onChoose(value); };
  const onKey = (event) => {
    if (event.key === "Enter") { event.preventDefault(); document.getElementById("message").focus(); } // it takes the model, and sends nothing
    else if (text === "" && (event.key === "Backspace" || event.key === "Delete")) onChoose("");
  };
  return html`<label class="pick"><span class="word">${t("model")}</span><input list="models" title=${chosen || usual} placeholder=${chosen || usual} value=${text ?? chosen}
      onFocus=${() => setText("")} onBlur=${() => setText(null)} onInput=${(e) => type(e.target.value)} onKeyDown=${onKey} /></label>
    <${ModelNames} models=${models} providers=${providers} />`;
}
