// Lines of the brief or the profile: correct, revoke and add them.
import { html, useEffect, useMemo, useRef, useState } from "../ui.js";
import { t } from "../strings.js";
import * as api from "../api.js";
import { ask } from "../dialogs.js";
import { cut, day, monthDay, nameField } from "../format.js";
import { useKept } from "../store.js";
import { choosePolicy, namePolicy } from "../money/policies.js";

// Choose a policy with which lines are sent that are not sent now.
export function UsePolicy({ conversation, policy }) {
  return html`<button title=${policy} onClick=${() => choosePolicy(conversation, policy)}>${t("useFromNow", { policy: namePolicy(policy) })}</button>`;
}

// Say when a line was said, if its message is known, and when it was noted, if that was on another day.
export function sayWhen(line, said) {
  const noted = day(line.at);
  if (!said) return t("stated", { day: noted });
  const isSameYear = new Date(said).getFullYear() === new Date(line.at).getFullYear();
  return day(said) === noted ? t("said", { day: noted }) : t("saidNoted", { said: (isSameYear ? monthDay : day)(said), day: noted });
}

// What is being written in place of a line is kept under its address.
const keyOf = (path, line) => `edit:${path}/${encodeURIComponent(line.id)}`;
export const readDraft = (path, line) => sessionStorage.getItem(keyOf(path, line));
export const dropDraft = (path, line) => sessionStorage.removeItem(keyOf(path, line));

// Take over what was being written in place of an earlier form of a line, which another tab has changed meanwhile.
function takeOver(path, line, earlier) {
  const found = earlier.find((old) => readDraft(path, old) !== null);
  if (!found) return;
  const draft = readDraft(path, found);
  sessionStorage.setItem(keyOf(path, line), draft === found.text ? line.text : draft);
  if (draft !== found.text) sessionStorage.setItem("before-" + keyOf(path, line), found.text);
  dropDraft(path, found);
}

// A line that can be edited and revoked. `path` is that of all lines; `source` says where it came from, `said` when.
export function Line({ line, earlier = [], source, said = null, path, query, change, below = null, sure = t("revokeSure"), sayEffect = async () => "", onEdit = () => {}, onForget = () => {} }) {
  const own = `${path}/${encodeURIComponent(line.id)}`;
  useMemo(() => takeOver(path, line, earlier), [line.id]);
  const [draft, setDraft] = useKept(keyOf(path, line));
  const [changed, setChanged] = useKept("before-" + keyOf(path, line)); // what the line said when the writing began
  const box = useRef(null);
  const [effect, setEffect] = useState("");
  useEffect(() => { if (draft === null && changed !== null) setChanged(null); }, [draft === null]);
  useEffect(() => { if (draft !== null) sayEffect().then(setEffect); }, [draft === null]);
  useEffect(() => box.current?.focus(), [draft === null]);
  const [busy, setBusy] = useState(false);
  const run = async (call) => {
    setBusy(true);
    const made = await change(call);
    setBusy(false);
    return made;
  };
  const save = async (event) => {
    event.preventDefault();
    const text = draft.trim();
    if (busy || !text) return;
    if (text === line.text) return setDraft(null);
    if (!await run(() => api.patch(own, { text }, query).then(() => dropDraft(path, line)))) return;
    setDraft(null);
    onEdit(line.text, text);
  };
  const revoke = async () => {
    const isSure = await ask({ title: t("revokeTitle", { text: cut(line.text) }), text: [sure, await sayEffect()].join(" "), action: t("forget"), danger: true });
    if (isSure && await run(() => api.remove(own, query).then(() => dropDraft(path, line)))) onForget(line.text);
  };
  const onKey = (event) => {
    if (event.key === "Escape") setDraft(null);
    else if (event.key === "Enter" && !event.shiftKey && !event.isComposing) save(event);
  };
  const about = { text: cut(line.text, 60) };
  return html`<li>
    ${draft === null
      ? html`<span class="line" title=${t("edit")} onClick=${() => busy || setDraft(line.text)}>${line.text}</span>`
      : html`<form onSubmit=${save}><textarea ref=${box} rows="2" aria-label=${t("editLine", about)} value=${draft} onInput=${(e) => setDraft(e.target.value)} onKeyDown=${onKey} />
          ${changed !== null && html`<p class="card-note" role="alert">${t("changedMeanwhile", { text: line.text })}</p>`}
          <span class="row"><button class="primary" disabled=${busy || !draft.trim()}>${t("save")}</button><button type="button" onClick=${() => setDraft(null)}>${t("cancel")}</button></span>${effect && html`<small>${effect}</small>`}</form>`}
    <small>${sayWhen(line, said)}${day(line.seen) !== day(line.at) ? ` · ${t("seen", { day: day(line.seen) })}` : ""} ${source}
      <span class="ways">${draft === null && html`<button class="small" disabled=${busy} aria-label=${t("editLine", about)} onClick=${() => setDraft(line.text)}>${t("edit")}</button>`}
      <button class="small danger" disabled=${busy} aria-label=${t("revokeLine", about)} title=${t("revokeHelp")} onClick=${revoke}>${t("forget")}</button></span></small>${below}</li>`;
}

// A form that adds a line to one of the fields. `begun` is what the line begins with where the visitor came to add it.
export function Add({ fields, first, path, more, change, fieldLabel, label, action, begun = null }) {
  const [field, setField] = useState((fields.find((each) => each.name === first) || fields[0])?.name || "");
  const [kept, setText] = useKept("add:" + path);
  const text = kept ?? "";
  const box = useRef(null);
  useEffect(() => {
    if (begun === null) return;
    setText(begun);
    box.current.scrollIntoView({ block: "center" });
    box.current.focus();
  }, [begun]);
  const add = async (event) => {
    event.preventDefault();
    if (text.trim() && await change(() => api.post(path, { field, text: text.trim(), ...more }))) setText("");
  };
  const isSingle = fields.find((each) => each.name === field)?.kind === "text";
  return html`<form class="add" onSubmit=${add}>
    <select aria-label=${fieldLabel} value=${field} onChange=${(e) => setField(e.target.value)}>${fields.map(({ name }) => html`<option value=${name}>${nameField(name)}</option>`)}</select>
    <input ref=${box} class="grow" aria-label=${label} placeholder=${label} value=${text} onInput=${(e) => setText(e.target.value)} />
    <button class="primary" disabled=${!text.trim()}>${action}</button>
    ${isSingle && html`<small>${t("replacesLine")}</small>`}</form>`;
}
