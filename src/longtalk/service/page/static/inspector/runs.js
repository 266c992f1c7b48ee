// Runs of messages with their verdict, which open to the messages themselves.
import { html, useEffect, useState } from "../ui.js";
import { t } from "../strings.js";
import * as api from "../api.js";
import { count, cut, nameReason, plain } from "../format.js";
import { linkTo } from "../list/list.js";

// Load with `read` when the values change; show `draw` of what was loaded, or the problem.
export function Loaded({ read, values, draw }) {
  const [state, setState] = useState(null);
  useEffect(() => {
    let current = true;
    read().then((found) => current && setState({ found }), (problem) => current && setState({ problem }));
    return () => { current = false; };
  }, values);
  if (!state) return html`<p class="quiet" role="status">${t("loading")}</p>`;
  return state.problem ? html`<p class="problem" role="alert">${state.problem.message}</p>` : draw(state.found);
}

const most = 50;

export function Run({ run, conversation, path, branch, excerpt = "", opened = false }) {
  const [open, setOpen] = useState(opened);
  const many = run.last - run.first;
  const which = many ? t("entriesFromTo", { first: run.first + 1, last: run.last + 1 }) : t("entryAt", { first: run.first + 1 });
  const read = () => api.get(path + "/history", { branch, before: run.last + 1, limit: Math.min(most, many + 1) });
  const inside = (entry) => run.first <= entry.position && entry.position <= run.last;
  return html`<li><button class="run" aria-expanded=${open} onClick=${() => setOpen(!open)}>
      <span class=${"verdict " + run.verdict}>${t("verdict_" + run.verdict)}</span> ${excerpt || which}
      <span class="quiet">${nameReason(run.reason)}${run.tokens ? " · " + t("tokenCount", { count: count(run.tokens) }) : ""}</span></button>
    ${open && html`<${Loaded} values=${[run.first, run.last]} read=${read} draw=${({ entries }) => html`
        ${many >= most && html`<p class="quiet">${t("lastOf", { shown: most, all: many + 1 })}</p>`}
        <ol class="texts">${entries.filter(inside).map((entry) => html`<li value=${entry.position + 1} key=${entry.id}><small>${t("role_" + entry.role)}</small> ${cut(plain(entry.text), 400)}
          <a href=${linkTo(conversation, entry.id, branch, entry.position)} aria-label=${t("inChatOf", { number: entry.position + 1 })}>${t("inChat")}</a></li>`)}</ol>`} />`}</li>`;
}
