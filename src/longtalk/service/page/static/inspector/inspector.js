// The context inspector: what a turn sent, what it left out and why, and what it cost.
import { html, useEffect, useState } from "../ui.js";
import { t } from "../strings.js";
import * as api from "../api.js";

const TABS = ["context", "request", "recall", "compaction"];
const number = (value) => Math.round(value).toLocaleString();

export function Inspector({ conversation, branch, turn }) {
  const [tab, setTab] = useState("context");
  if (!turn) return html`<p class="quiet">${t("noTurn")}</p>`;
  const View = { context: Context, request: Request, recall: Recall, compaction: Compaction }[tab];
  return html`<div class="inspector">
    <div role="tablist" aria-label=${t("inspector")}>${TABS.map((each) => html`<button role="tab"
      id=${"tab-" + each} aria-selected=${tab === each} aria-controls="inspected" onClick=${() => setTab(each)}>${t("tab_" + each)}</button>`)}</div>
    <div role="tabpanel" id="inspected" tabindex="0" aria-labelledby=${"tab-" + tab}>
      <${View} path=${api.one(conversation)} branch=${branch} turn=${turn} key=${tab + turn} /></div>
  </div>`;
}

// Load with `read` when the values change; show `draw` of what was loaded, or the problem.
function Loaded({ read, values, draw }) {
  const [state, setState] = useState(null);
  useEffect(() => {
    let current = true;
    setState(null);
    read().then((found) => current && setState({ found }), (problem) => current && setState({ problem }));
    return () => { current = false; };
  }, values);
  if (!state) return html`<p class="quiet" role="status">${t("loading")}</p>`;
  return state.problem ? html`<p class="problem" role="alert">${state.problem.message}</p>` : draw(state.found);
}

// The parts of a request in the order in which it has them, by name, in tokens.
export function findParts({ metrics, window }) {
  const { total, history, summary, brief, outline, recall } = metrics;
  const parts = { system: Math.max(0, total - history - summary - recall), brief, outline,
    summary: Math.max(0, summary - brief - outline), history, recall };
  if (window) parts.free = Math.max(0, window - total);
  return Object.entries(parts).filter(([, tokens]) => tokens > 0);
}

function Context({ path, branch, turn }) {
  return html`<${Loaded} values=${[turn]} read=${() => api.get(`${path}/turns/${turn}/manifest`, { branch })} draw=${(manifest) => {
    const { metrics, runs, window } = manifest;
    if (!metrics) return html`<p class="quiet">${t("nothingSent")}</p>`;
    const parts = findParts(manifest);
    const { usage } = metrics;
    return html`
      <p>${t("sentTokens", { total: number(metrics.total), model: metrics.model })}${window ? t("itsWindow", { window: number(window) }) : ""}.
        ${usage.input ? " " + t("reported", { input: number(usage.input), cached: number(usage.cached), output: number(usage.output) }) : ""}
        ${metrics.cost !== null ? " " + t("costs", { cost: metrics.cost.toFixed(4) }) : ""}</p>
      <div class="parts" aria-hidden="true">${parts.filter(([name]) => name !== "free").map(([name, tokens]) => html`<span class=${"part " + name} style=${{ flexGrow: tokens }} />`)}</div>
      <table class="legend"><tbody>${parts.map(([name, tokens]) => html`<tr><th scope="row"><span class=${"part " + name} /> ${t("part_" + name)}</th><td>${number(tokens)}</td></tr>`)}</tbody></table>
      <h3>${t("everyEntry")}</h3>
      <ul class="runs">${runs.map((run) => html`<${Run} run=${run} path=${path} branch=${branch} key=${run.first} />`)}</ul>`;
  }} />`;
}

function Run({ run, path, branch }) {
  const [open, setOpen] = useState(false);
  const many = run.last - run.first;
  const which = many ? t("entriesFromTo", { first: run.first + 1, last: run.last + 1 }) : t("entryAt", { first: run.first + 1 });
  return html`<li><button class="run" aria-expanded=${open} onClick=${() => setOpen(!open)}>
      <span class=${"verdict " + run.verdict}>${t("verdict_" + run.verdict)}</span> ${which}
      <span class="quiet">${run.reason}${run.tokens ? " · " + t("tokenCount", { count: number(run.tokens) }) : ""}</span></button>
    ${open && html`<${Loaded} values=${[run.first]} draw=${({ entries }) => html`<ol class="texts">${entries
        .filter((entry) => entry.position >= run.first)
        .map((entry) => html`<li value=${entry.position + 1}><small>${entry.role}</small> ${entry.text.slice(0, 400)}</li>`)}</ol>`}
      read=${() => api.get(path + "/history", { branch, before: run.last + 1, limit: Math.min(50, many + 1) })} />`}</li>`;
}

// Return what two texts begin with in common: its length in characters.
export function countShared(one, other) {
  let low = 0;
  let high = Math.min(one.length, other.length);
  while (low < high) {
    const middle = Math.ceil((low + high) / 2);
    if (one.startsWith(other.slice(0, middle))) low = middle; else high = middle - 1;
  }
  return low;
}

async function readRequests(path, branch, turn) {
  const { metrics } = await api.get(path + "/metrics", { branch });
  const at = metrics.findIndex((each) => each.turn === turn);
  const read = (id) => api.get(`${path}/turns/${id}/requests`, { branch });
  const [{ requests }, before] = await Promise.all([read(turn), at > 0 ? read(metrics[at - 1].turn) : { requests: [] }]);
  return { requests, before: before.requests.filter((each) => each.body).pop()?.body || "", usage: metrics[at]?.usage };
}

function Request({ path, branch, turn }) {
  return html`<${Loaded} values=${[turn]} read=${() => readRequests(path, branch, turn)} draw=${({ requests, before, usage }) => {
    if (!requests.length) return html`<p class="quiet">${t("nothingSent")}</p>`;
    return requests.map((each, i) => {
      if (each.body === null) return html`<p class="quiet">${each.problem}</p>`;
      const shared = countShared(each.body, i ? requests[i - 1].body || "" : before);
      return html`<h3>${each.model}</h3>
        <p class="quiet">${t("sharedWithBefore", { shared: number(shared), all: number(each.body.length) })}
          ${i === 0 && usage?.cached ? t("readFromCache", { cached: number(usage.cached), input: number(usage.input) }) : ""}</p>
        <pre class="request" tabindex="0"><span class="shared">${each.body.slice(0, shared)}</span>${shared ? html`<mark class="cut">${t("newFromHere")}</mark>` : ""}${each.body.slice(shared)}</pre>`;
    });
  }} />`;
}

function Recall({ path, branch, turn }) {
  const read = async () => {
    const { recalled } = await api.get(`${path}/turns/${turn}/recalled`, { branch });
    const pages = await Promise.all(recalled.map((each) => api.get(path + "/history", { branch, before: each.position + 1, limit: 1 })));
    return recalled.map((each, i) => ({ ...each, text: pages[i].entries.find((entry) => entry.position === each.position)?.text || "" }));
  };
  return html`<${Loaded} values=${[turn]} read=${read} draw=${(found) => found.length
    ? html`<ol class="texts">${found.map((each) => html`<li><p>${each.text.slice(0, 400)}</p>
        <small>${t("entryAt", { first: each.position + 1 })} · ${t("score", { score: each.score.toFixed(2) })}
          ${each.words.length ? " · " + t("sharedWords", { words: each.words.join(", ") }) : ""}</small></li>`)}</ol>`
    : html`<p class="quiet">${t("nothingRecalled")}</p>`} />`;
}

function Compaction({ path, branch, turn }) {
  return html`<${Loaded} values=${[turn]} read=${() => api.get(path + "/epochs", { branch })} draw=${({ epochs }) => epochs.length
    ? [...epochs].reverse().map((epoch) => html`<section class="epoch"><h3>${t("compactedAt", { start: epoch.start })}</h3>
        <p class="quiet">${epoch.reason} · ${t("tokenCount", { count: number(epoch.tokens) })}</p>
        ${epoch.summary && html`<p>${t("standsInPlace")}</p><pre>${epoch.summary}</pre>`}
        <ul class="runs">${epoch.runs.map((run) => html`<${Run} run=${run} path=${path} branch=${branch} key=${run.first} />`)}</ul></section>`)
    : html`<p class="quiet">${t("nothingCompacted")}</p>`} />`;
}
