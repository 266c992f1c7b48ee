// The command palette: conversations, messages, views and actions by name; and the list of keys.
import { html, useEffect, useRef, useState } from "../ui.js";
import { t } from "../strings.js";
import * as api from "../api.js";
import { app, createStore, useStore } from "../store.js";
import { Modal } from "../dialogs.js";
import { cutAround, linkTo, nameOf } from "../list/list.js";
import { findPressed, isTyping, keyName, findKey, listCommands, paletteKey, run } from "./commands.js";

const store = createStore({ open: "" });
const close = () => store.set({ open: "" });
export const openPalette = () => store.set({ open: "palette" });
export const openKeys = () => store.set({ open: "keys" });

const isFind = (event) => (event.ctrlKey || event.metaKey) && !event.altKey && !event.shiftKey && event.key.toLowerCase() === "f";

// Whether the page holds only a part of the conversation, so that the browser's search would miss the rest.
function isCut() {
  const shown = document.querySelectorAll(".feed article");
  return shown.length > 0 && Number(shown[0].getAttribute("aria-setsize")) > shown.length;
}

export function handleKey(event, route) {
  if ((event.ctrlKey || event.metaKey) && !event.altKey && event.key.toLowerCase() === "k") {
    event.preventDefault();
    store.set(({ open }) => ({ open: open === "palette" ? "" : "palette" }));
  } else if (isFind(event) && store.get().open === "find") {
    close(); // the browser's own search follows
  } else if (isFind(event) && route.kind === "c" && isCut() && !document.querySelector("dialog[open]")) {
    event.preventDefault();
    store.set({ open: "find" });
  } else if (!document.querySelector("dialog[open]")) {
    const command = findPressed(event, route);
    const isHelp = event.key === "?" && !isTyping(event) && !event.ctrlKey && !event.metaKey;
    if (command || isHelp) event.preventDefault();
    if (command) run(command);
    else if (isHelp) openKeys();
  }
}

function useHits(words, conversation) {
  const [hits, setHits] = useState([]);
  useEffect(() => {
    let current = true;
    const later = setTimeout(async () => {
      const found = words.trim().length > 1 ? await api.get("/search", { q: words, conversation, limit: conversation ? 30 : 8 }).catch(() => ({ hits: [] })) : { hits: [] };
      if (current) setHits(found.hits);
    }, 150);
    return () => { current = false; clearTimeout(later); };
  }, [words]);
  return hits;
}

// Return the groups that are shown: [title, items].
function findItems(words, hits, route) {
  const wanted = words.toLowerCase().split(/\s+/).filter(Boolean);
  const fits = ({ label }) => wanted.every((word) => label.toLowerCase().includes(word));
  const { conversations } = app.get();
  const commands = [...listCommands(route), { id: "shortcuts", label: t("shortcuts"), shown: "?", run: openKeys }];
  const talks = conversations.filter((each) => each.id !== route.id)
    .map((each) => ({ id: "c-" + each.id, label: nameOf(each), run: () => { location.hash = "#/c/" + encodeURIComponent(each.id); } }));
  const names = new Map(conversations.map((each) => [each.id, nameOf(each)]));
  const messages = hits.map((hit) => ({ id: "h-" + hit.entry, label: cutAround(hit.text, words, 150), isHit: true, talk: names.get(hit.conversation),
    run: () => { location.hash = linkTo(hit.conversation, hit.entry, hit.branch, hit.position); } }));
  const groups = [[t("actions"), commands.filter(fits)], [t("menu"), talks.filter(fits).slice(0, wanted.length ? 12 : 6)], [t("messages"), messages]];
  return (wanted.length ? [groups[1], groups[0], groups[2]] : groups).filter(([, items]) => items.length);
}

// `within` is the conversation whose messages alone are searched.
function Chooser({ route, within }) {
  const [words, setWords] = useState("");
  const [at, setAt] = useState(0);
  const hits = useHits(words, within);
  const groups = findItems(words, hits, route).filter(([title]) => !within || title === t("messages"));
  const label = t(within ? "findHere" : "palette");
  const items = groups.flatMap(([, each]) => each);
  const chosen = items[Math.min(at, items.length - 1)];
  const list = useRef(null);
  useEffect(() => list.current?.querySelector('[aria-selected="true"]')?.scrollIntoView({ block: "nearest" }), [chosen?.id]);
  const choose = (item) => { close(); if (item) setTimeout(() => run(item)); };
  const onKey = (event) => {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (step) { event.preventDefault(); setAt((Math.min(at, items.length - 1) + step + items.length) % items.length || 0); }
    else if (event.key === "Home" && event.ctrlKey) setAt(0);
    else if (event.key === "End" && event.ctrlKey) setAt(items.length - 1);
    else if (event.key === "Enter" && !event.isComposing) { event.preventDefault(); choose(chosen); }
  };
  return html`<${Modal} label=${label} name="palette" onClose=${close}>
    <input autofocus role="combobox" aria-label=${label} placeholder=${t(within ? "findHere" : "paletteHelp")} aria-expanded="true" aria-controls="choices" autocomplete="off"
      aria-autocomplete="list" aria-activedescendant=${chosen ? "choice-" + chosen.id : null} value=${words} onInput=${(e) => { setWords(e.target.value); setAt(0); }} onKeyDown=${onKey} />
    <div id="choices" class="choices" role="listbox" aria-label=${label} ref=${list}>${groups.map(([title, each]) => html`<div role="group" aria-label=${title} key=${title}>
      <div class="group" aria-hidden="true">${title}</div>
      ${each.map((item) => html`<div role="option" key=${item.id} id=${"choice-" + item.id} class=${item.isHit ? "choice message" : "choice"} aria-selected=${item === chosen || item.id === chosen?.id}
        aria-keyshortcuts=${item.key ? "Alt+" + item.key : null} onMouseMove=${() => chosen?.id !== item.id && setAt(items.indexOf(item))} onClick=${() => choose(item)}>
        <span>${item.label}</span>${item.talk && html`<small>${item.talk}</small>`}${(item.key || item.shown) && html`<kbd>${item.key ? keyName(item.key) : item.shown}</kbd>`}</div>`)}</div>`)}</div>
    <p class="sr" role="status">${t("choices", { count: items.length })}</p>
    ${within && !words ? html`<p class="quiet none">${t("findHereHelp", { key: findKey })}</p>` : !items.length && html`<p class="quiet none">${t(within ? "noHit" : "noChoice")}</p>`}<//>`;
}

function Keys({ route }) {
  const fixed = [[t("palette"), paletteKey], [t("shortcuts"), "?"], [t("send"), "Enter"], [t("newLine"), "Shift Enter"], [t("closeAny"), "Esc"], [t("findHere"), findKey]];
  const commands = listCommands({ ...route, kind: "c", id: route.id || "-" }).filter((each) => each.key).map((each) => [each.label, keyName(each.key)]);
  return html`<${Modal} label=${t("shortcuts")} name="keys" onClose=${close}><h2>${t("shortcuts")}</h2>
    <dl class="shortcuts">${[...fixed, ...commands].map(([label, key]) => html`<div><dt>${label}</dt><dd>${key.split(" ").map((each) => html`<kbd>${each}</kbd> `)}</dd></div>`)}</dl>
    <div class="row end"><button autofocus onClick=${close}>${t("close")}</button></div><//>`;
}

export function Palette({ route }) {
  const { open } = useStore(store);
  useStore(app);
  return open === "palette" || open === "find" ? html`<${Chooser} key=${open} route=${route} within=${open === "find" ? route.id : null} />` : open === "keys" ? html`<${Keys} route=${route} />` : null;
}
