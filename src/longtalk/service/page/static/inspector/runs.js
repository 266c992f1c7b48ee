// Runs of messages with their verdict, which open to the messages themselves.
import { html, useEffect, useState } from "../ui.js";
import { t } from "../strings.js";
import * as api from "../api.js";
import { count, cut, day, days, nameReason, plain } from "../format.js";
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

// Return the entries at some positions of a branch, by their positions. Neighbours are read together.
export async function readPlaces(path, branch, positions) {
  const pages = [];
  for (const at of [...new Set(positions)].sort((a, b) => a - b)) {
    const page = pages.at(-1);
    if (page && at - page.first < 100) page.last = at; else pages.push({ first: at, last: at });
  }
  const found = await Promise.all(pages.map(({ first, last }) => api.get(path + "/history", { branch, before: last + 1, limit: last - first + 1 })));
  return new Map(found.flatMap(({ entries }) => entries.map((each) => [each.position, each])));
}

// Runs, each by its first words or its dates.
export function Runs({ runs, path, branch, ...more }) {
  const [places, setPlaces] = useState(new Map());
  useEffect(() => {
    let current = true;
    readPlaces(path, branch, runs.flatMap((run) => [run.first, run.last])).then((found) => current && setPlaces(found), () => {});
    return () => { current = false; };
  }, [runs, path, branch]);
  return html`<ul class="runs">${runs.map((run) => html`<${Run} key=${run.first} run=${run} path=${path} branch=${branch} first=${places.get(run.first)} last=${places.get(run.last)} ...${more} />`)}</ul>`;
}

// What happens to messages; `isNext` says that the request is not sent yet. "Left out" is what the visitor chose.
export const nameVerdict = ({ verdict, reason }, isNext) => t("verdict_" + (isNext && verdict === "sent" ? "next" : reason === "outline" ? "outlined"
  : verdict === "left_out" && reason !== "excluded" ? "not_sent" : verdict));

const most = 50;
// What was not sent is counted for its whole stretch, and shared among the runs that it is cut into.
const isWhole = ({ verdict }) => ["sent", "held", "recalled"].includes(verdict);

// `first` and `last` are the entries at its ends, as far as they are known.
function Run({ run, first, last, conversation, path, branch, isNext = false, opened = false }) {
  const [open, setOpen] = useState(opened);
  const many = run.last - run.first;
  const which = many ? t("manyMessages", { count: many + 1 }) : first && open ? t("role_" + first.role) : first ? `“${cut(plain(first.text).trim(), 80)}”` : t("part_message");
  const when = !first ? "" : many && last ? days(first.at, last.at) : day(first.at);
  const read = () => api.get(path + "/history", { branch, before: run.last + 1, limit: Math.min(most, many + 1) });
  const inside = (entry) => run.first <= entry.position && entry.position <= run.last;
  return html`<li><button class="run" aria-expanded=${open} onClick=${() => setOpen(!open)}>
      <span class=${"verdict " + run.verdict}>${nameVerdict(run, isNext)}</span> ${which}${many && when ? html` <small>${when}</small>` : ""}
      <span class="quiet">${[!many && when, nameReason(run.reason), run.tokens && t(isWhole(run) ? "tokenCount" : "aboutTokens", { count: count(run.tokens) })].filter(Boolean).join(" · ")}</span></button>
    ${open && html`<${Loaded} values=${[run.first, run.last]} read=${read} draw=${({ entries }) => html`
        ${many >= most && html`<p class="quiet">${t("lastOf", { shown: most, all: many + 1 })}</p>`}
        <ol class=${"texts" + (many ? "" : " one")}>${entries.filter(inside).map((entry) => html`<li key=${entry.id}>${many > 0 && html`<small>${day(entry.at)} · ${t("role_" + entry.role)}</small> `}${cut(plain(entry.text), 400)}${" "}
          <a href=${linkTo(conversation, entry.id, branch, entry.position)} aria-label=${t("inChatOf", { text: cut(plain(entry.text), 60) })}>${t("inChat")}</a></li>`)}</ol>`} />`}</li>`;
}
