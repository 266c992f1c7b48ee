// The map of branches: each under the one that it parts from, by its first message that differs.
import { html, useEffect, useState } from "../ui.js";
import { t } from "../strings.js";
import * as api from "../api.js";
import { cut, plain } from "../format.js";

export function BranchMap({ conversation, branch, onBranch }) {
  const [branches, setBranches] = useState([]);
  const path = api.one(conversation);
  useEffect(() => {
    let current = true;
    const read = async () => {
      const found = (await api.get(path + "/branches")).branches;
      const readTexts = async ({ name, shared }) => {
        const { entries } = await api.get(path + "/history", { branch: name, before: shared + 1, limit: 2 });
        const [text, before] = [shared, shared - 1].map((at) => entries.find((each) => each.position === at)?.text);
        return { text, before };
      };
      const texts = await Promise.all(found.map(readTexts));
      if (current) setBranches(found.map((each, i) => ({ ...each, ...texts[i] })));
    };
    read();
    return () => { current = false; };
  }, [conversation, branch]);
  const under = (source) => {
    const found = branches.filter((each) => each.source === source);
    return found.length ? html`<ul class="map">${found.map((each) => html`<li key=${each.name}>
      <button aria-current=${each.name === branch ? "true" : null} class=${each.name === branch ? "primary" : ""} onClick=${() => onBranch(each.name)}>${cut(each.text || t("noMessage"), 90)}</button>
      <small>${!each.source ? t("trunk") : each.shared ? t("forksAt", { text: cut(plain(each.before || ""), 60) }) : t("forksAtStart")} · ${t("entries", { count: each.entries })}</small>
      ${under(each.name)}</li>`)}</ul>` : null;
  };
  return html`<p class="quiet">${t(branches.length === 1 ? "mapOfOne" : "mapHelp")}</p>${under(null)}`;
}
