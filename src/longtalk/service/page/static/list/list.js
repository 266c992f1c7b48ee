// The list of conversations: search as you type, rename, delete, import, export.
import { html, useEffect, useState } from "../ui.js";
import { t } from "../strings.js";
import * as api from "../api.js";
import { app, useStore } from "../store.js";
import { ask, notify, report } from "../dialogs.js";
import { announce, onOthers } from "../chat/talk.js";
import { cut, day, plain } from "../format.js";

export async function loadList() {
  const { conversations } = await api.get("/conversations", { limit: 100 });
  app.set({ conversations: conversations.filter((each) => each.kind === "conversation") });
}

// Open a new conversation, or the one that was begun before and has no message.
export async function begin() {
  const unused = app.get().conversations.find((each) => !each.entries && !each.title);
  const { id } = unused || await api.post("/conversations", {});
  if (!unused) await loadList();
  location.hash = "#/c/" + encodeURIComponent(id);
  document.getElementById("message")?.focus();
}

// Import a file and open it if it is one conversation, or say why it can't be imported.
export async function importFile(file) {
  if (!file) return;
  try {
    const found = await post(file);
    if (!found) return;
    const { conversations } = found;
    await loadList();
    announce("");
    notify(t("imported"));
    if (conversations.length === 1) location.hash = "#/c/" + encodeURIComponent(conversations[0].id);
  } catch (error) {
    const isMarkdown = /\.(md|markdown)$/i.test(file.name) && error.status === 400;
    report({ message: isMarkdown ? t("noMarkdown", { file: file.name }) : error.message.replace(/'import-[0-9a-f]{12}'/, `“${file.name}”`) });
  }
}

// Send a file to be imported. Where its conversation is there already, and differs, offer a copy; null if it is not wanted.
async function post(file) {
  try {
    return await api.post("/import", file);
  } catch (error) {
    const [, id] = /^The store already has .*?['"]([^'"]+)['"].* Choose another id/.exec(error.message) || [];
    if (!id) throw error;
    if (!await ask({ title: t("copyTitle", { file: file.name }), text: t(error.message.includes("a different conversation") ? "copyOther" : "copySame"), action: t("copyAction") })) return null;
    const done = await api.post("/import", file, { id: `${id}-${Date.now().toString(36)}` });
    const copy = await api.get(api.one(done.conversations[0].id));
    await api.patch(api.one(copy.id), { title: t("copyOf", { title: nameOf(copy) }) });
    return done;
  }
}

export async function renameOne(each) {
  const title = await ask({ title: t("renameTitle", { title: nameOf(each) }), field: t("titleField"), value: each.title, action: t("rename") });
  if (title === null) return;
  await api.patch(api.one(each.id), { title });
  await loadList();
  announce(each.id);
}

export async function deleteOne(each, current) {
  if (!await ask({ title: t("deleteTitle", { title: nameOf(each) }), text: t("deleteSure"), action: t("delete"), danger: true })) return;
  await api.remove(api.one(each.id));
  await loadList();
  announce(each.id);
  if (each.id === current) location.hash = "#/";
}

export async function exportOne(each, format) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(await api.download(api.one(each.id) + "/export", { format }));
  link.download = `${each.id}.${format}`;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
}

// Open the sample: the one that is there, with what the visitor has changed in it, or a new one.
export async function openSample() {
  const { id } = (await api.post("/sample")).conversations[0];
  await loadList();
  location.hash = "#/c/" + encodeURIComponent(id) + "/inspector";
}

// Ask for a file, and import it.
export function chooseFile() {
  const field = document.createElement("input");
  field.type = "file";
  field.onchange = () => importFile(field.files[0]);
  field.click();
}

// The address of a message in its conversation, on the branch that is open or on another. With its position it is found at once.
export const linkTo = (conversation, entry, branch = "", position = null) => `#/c/${[
  conversation, "at", entry, ...(branch ? [branch, ...(position === null ? [] : [position])] : [])].map(encodeURIComponent).join("/")}`;
// Return the part of a text in which the first of some words stands.
export function cutAround(marked, words, size = 140) {
  const text = plain(marked);
  const found = words.trim().split(/\s+/).map((word) => text.toLowerCase().indexOf(word.toLowerCase())).filter((at) => at >= 0);
  const first = Math.min(...found, Infinity);
  if (!found.length || first <= size / 3) return cut(text, size);
  const start = text.indexOf(" ", first - size / 3) + 1; // of a word
  const from = 0 < start && start <= first ? start : first;
  return "…" + cut(text.slice(from), size);
}

export const nameOf = (each) => each.title || t("untitled");

export function List({ current, onClose }) {
  const { conversations } = useStore(app);
  const [words, setWords] = useState("");
  const [{ hits, sought }, setFound] = useState({ hits: [], sought: "" });
  useEffect(() => onOthers(() => loadList().catch(() => {})), []);
  useEffect(() => {
    let stale = false;
    const later = setTimeout(async () => {
      const found = words.trim() ? (await api.get("/search", { q: words }).catch(() => ({ hits: [] }))).hits : [];
      if (!stale) setFound({ hits: found, sought: words });
    }, 150);
    return () => { stale = true; clearTimeout(later); };
  }, [words, words && conversations]);
  // A chosen action closes its menu first, which takes the focus, so that it is there again after a dialog.
  const closeMenu = ({ target, currentTarget }) => {
    if (target.tagName !== "BUTTON") return;
    currentTarget.querySelector("summary").focus();
    currentTarget.open = false;
  };
  const shown = conversations.filter((each) => nameOf(each).toLowerCase().includes(words.toLowerCase()));
  return html`
    <button class="primary wide" onClick=${() => { onClose(); begin().catch(report); }}>${t("newChat")}</button>
    <input id="search" type="search" aria-label=${t("search")} placeholder=${t("search")} value=${words} onInput=${(e) => setWords(e.target.value)} />
    <ul class="list">
      ${shown.map((each) => html`<li key=${each.id} class=${each.id === current ? "current" : ""}>
        <a href=${"#/c/" + encodeURIComponent(each.id)} aria-current=${each.id === current ? "page" : null} onClick=${onClose}>${nameOf(each)}</a>
        <details class="menu" onClickCapture=${closeMenu} onFocusOut=${(e) => { if (!e.currentTarget.contains(e.relatedTarget)) e.currentTarget.open = false; }}><summary aria-label=${t("conversationMenu")}>⋯</summary><div>
          <button onClick=${() => renameOne(each).catch(report)}>${t("rename")}</button>
          ${["json", "md"].map((format) => html`<button onClick=${() => exportOne(each, format).catch(report)}>${t("export")} .${format}</button>`)}
          <button class="danger" onClick=${() => deleteOne(each, current).catch(report)}>${t("delete")}</button></div></details></li>`)}
      ${hits.map((hit) => html`<li key=${"hit" + hit.entry}><a class="hit" href=${linkTo(hit.conversation, hit.entry, hit.branch, hit.position)} onClick=${onClose}>${cutAround(hit.text, words)}
        <small>${[day(hit.at), conversations.find((each) => each.id === hit.conversation)].filter(Boolean).map((each) => each.id ? nameOf(each) : each).join(" · ")}</small></a></li>`)}
      ${words.trim() && sought === words && !shown.length && !hits.length ? html`<li class="none" role="status">${t("noHitAtAll")}</li>` : ""}
    </ul>`;
}
