// What the page can do by name or key: {id, label, run, key}. `key` is a letter that is pressed with Alt.
import { t } from "../strings.js";
import { app } from "../store.js";
import { report } from "../dialogs.js";
import { begin, chooseFile, deleteOne, exportOne, openSample, renameOne } from "../list/list.js";
import { switchTheme } from "../theme.js";

const isMac = /Mac|iP(hone|ad)/.test(navigator.platform);
// Open a view. Where the focus was on the link of another view, it goes along.
const go = (address) => () => {
  const follow = () => setTimeout(() => document.querySelector(".views [aria-current]")?.focus());
  if (location.hash !== address && document.activeElement?.closest(".views")) addEventListener("hashchange", follow, { once: true });
  location.hash = address;
};

export function listCommands(route) {
  const { conversations, health } = app.get();
  const here = route.kind === "c" ? "#/c/" + encodeURIComponent(route.id) : null;
  const current = conversations.find((each) => each.id === route.id);
  const all = [
    { id: "newChat", key: "N", run: begin },
    here && { id: "chatView", key: "C", run: go(here) },
    here && { id: "inspector", key: "I", run: go(here + "/inspector") },
    here && { id: "memoryView", key: "M", run: go(here + "/memory") },
    here && { id: "moneyView", key: "O", run: go(here + "/money") },
    here && { id: "branches", key: "B", run: go(here + "/branches") },
    current && { id: "rename", label: t("renameThis"), run: () => renameOne(current) },
    current && { id: "exportJson", label: t("exportThis", { format: ".json" }), run: () => exportOne(current, "json") },
    current && { id: "exportMd", label: t("exportThis", { format: ".md" }), run: () => exportOne(current, "md") },
    current && { id: "delete", label: t("deleteThis"), run: () => deleteOne(current, route.id) },
    { id: "costsOfAll", run: go("#/money") },
    { id: "import", run: chooseFile },
    { id: "theme", key: "T", run: switchTheme },
    { id: "openSample", run: openSample },
    { id: "licences", run: go("#/licences") },
    health?.key && { id: "keys", run: go("#/settings") },
    health?.is_single_user && { id: "providerKeys", run: go("#/settings") },
  ];
  return all.filter(Boolean).map((each) => ({ ...each, label: each.label || t(each.id) }));
}

export const run = (command) => Promise.resolve().then(command.run).catch(report);
export const keyName = (key) => (isMac ? "⌥" : "Alt ") + key;
export const paletteKey = isMac ? "⌘K" : "Ctrl K";
export const findKey = isMac ? "⌘F" : "Ctrl F";
export const isTyping = ({ target }) => target instanceof Element && !!target.closest("input,textarea,select,[contenteditable]");

// Return the command of a pressed key. On a Mac, Alt with a letter writes a character, so it counts outside of fields only.
export function findPressed(event, route) {
  if (!event.altKey || event.ctrlKey || event.metaKey || event.shiftKey || (isMac && isTyping(event))) return null;
  return listCommands(route).find((each) => each.key && event.code === "Key" + each.key) || null;
}
