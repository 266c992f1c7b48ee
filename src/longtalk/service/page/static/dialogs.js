// Dialogs of the page, in place of the browser's own: questions with or without a text field, and short notices.
import { html, useEffect, useLayoutEffect, useRef, useState } from "./ui.js";
import { t } from "./strings.js";
import { createStore, useStore } from "./store.js";

const store = createStore({ question: null, notice: null });
let asked = 0;
let ending = 0;

// Ask a question. Resolves to the text of its field, or to true if it has none; to null if it was not confirmed.
export function ask({ title, text = "", field = null, value = "", action, danger = false }) {
  store.get().question?.done(null);
  asked += 1;
  return new Promise((done) => store.set({ question: { title, text, field, value, action, danger, done, number: asked } }));
}

// Show a notice for some seconds: longer if there is something to do or to understand. It can have a button.
export function notify(text, { isProblem = false, action = "", onAction } = {}) {
  clearTimeout(ending);
  store.set({ notice: { text, isProblem, action, onAction } });
  ending = setTimeout(() => store.set({ notice: null }), isProblem ? 20000 : action ? 20000 : 5000);
}

export const dismiss = () => store.set({ notice: null });

export const report = (error) => notify(error.message, { isProblem: true });

// A modal dialog that closes with Escape, with a click beside it, and by `onClose`. The focus goes back to where it was.
export function Modal({ label, onClose, children, name = "" }) {
  const box = useRef(null);
  const pressed = useRef(null); // text may be selected from the inside to the outside
  useLayoutEffect(() => { // at once: the next key is for the dialog
    const dialog = box.current;
    dialog.showModal();
    return () => dialog.close(); // which gives the focus back
  }, []);
  const onKey = (event) => event.key === "Escape" && event.stopPropagation();
  return html`<dialog ref=${box} class=${"modal " + name} aria-label=${label} onKeyDown=${onKey} onCancel=${(e) => { e.preventDefault(); onClose(); }}
    onMouseDown=${(e) => { pressed.current = e.target; }} onClick=${(e) => e.target === box.current && pressed.current === box.current && onClose()}><div class="inside">${children}</div></dialog>`;
}

function Question({ question }) {
  const [value, setValue] = useState(question.value);
  const field = useRef(null);
  useEffect(() => field.current?.select(), []);
  const close = (result) => { store.set({ question: null }); question.done(result); };
  const submit = (event) => { event.preventDefault(); close(question.field === null ? true : value); };
  return html`<${Modal} label=${question.title} onClose=${() => close(null)}><form onSubmit=${submit}>
    <h2>${question.title}</h2>${question.text && html`<p>${question.text}</p>`}
    ${question.field !== null && html`<input ref=${field} autofocus aria-label=${question.field} value=${value} onInput=${(e) => setValue(e.target.value)} />`}
    <div class="row end"><button type="button" onClick=${() => close(null)}>${t("cancel")}</button>
      <button class=${question.danger ? "primary bad" : "primary"}>${question.action}</button></div></form><//>`;
}

export function Dialogs() {
  const { question } = useStore(store);
  return question && html`<${Question} key=${question.number} question=${question} />`;
}

// The notice, in the flow of the page, so that it lies over nothing.
export function Notices() {
  const { notice } = useStore(store);
  return html`<div class="notices" role="status">${notice && html`<p class=${"notice" + (notice.isProblem ? " problem" : "")} role=${notice.isProblem ? "alert" : null}>${notice.text}
      ${notice.action && html`<button onClick=${() => { dismiss(); notice.onAction(); }}>${notice.action}</button>`}
      <button aria-label=${t("close")} onClick=${dismiss}>×</button></p>`}</div>`;
}
