// The map of branches: each under the one that it forks from.
import { html, useEffect, useState } from "../ui.js";
import { t } from "../strings.js";
import * as api from "../api.js";

export function BranchMap({ conversation, branch, onBranch }) {
  const [branches, setBranches] = useState([]);
  useEffect(() => { api.get(api.one(conversation) + "/branches").then((found) => setBranches(found.branches)); }, [conversation, branch]);
  const under = (source) => {
    const found = branches.filter((each) => each.source === source);
    return found.length ? html`<ul class="map">${found.map((each) => html`<li key=${each.name}>
      <button aria-current=${each.name === branch ? "true" : null} class=${each.name === branch ? "primary" : ""} onClick=${() => onBranch(each.name)}>${each.name}</button>
      <small>${each.source ? t("forksAt", { shared: each.shared }) : ""} ${t("entries", { count: each.entries })}</small>
      ${under(each.name)}</li>`)}</ul>` : null;
  };
  return under(null);
}
