// The views besides the chat. Each is loaded when it is opened; a new view is one line here and a title in strings.js.
// A view gets {conversation, branch, turn, onClose}; its address is #/c/ID/NAME.
import { html, useEffect, useState } from "./ui.js";
import { t } from "./strings.js";
import { report } from "./dialogs.js";

export const views = {
  inspector: async () => (await import("./inspector/inspector.js")).Inspector,
  branches: async () => (await import("./branches/map.js")).BranchMap,
};

// Views that stand alone, loaded when they are opened too.
const pages = {
  memory: async () => (await import("./memory/memory.js")).Memory,
  money: async () => (await import("./money/money.js")).Money,
  licences: async () => (await import("./licences/licences.js")).Licences,
};

export function Page({ name, ...more }) {
  const [View, setView] = useState(null);
  useEffect(() => { pages[name]().then((found) => setView(() => found), report); }, [name]);
  return View ? html`<${View} ...${more} />` : html`<div class="view"><p class="column pad quiet" role="status">${t("loading")}</p></div>`;
}
