// The context inspector: what a turn sent, what it left out and why, and what it cost.
import { html, useEffect, useState } from "../ui.js";
import { t } from "../strings.js";
import * as api from "../api.js";
import { count, cut, dollars, time } from "../format.js";
import { Loaded, Run } from "./runs.js";
import { Compaction } from "./compaction.js";
import { Request } from "./request.js";

const TABS = ["context", "request", "recall", "compaction"];
const VIEWS = { context: Context, request: Request, recall: Recall, compaction: Compaction };

export function Inspector({ conversation, branch, turn, tab: asked }) {
  const [tab, setTab] = useState("context");
  useEffect(() => { if (TABS.includes(asked)) setTab(asked); }, [asked]);
  const [chosen, setChosen] = useState(turn);
  const [turns, setTurns] = useState([]);
  const path = api.one(conversation);
  useEffect(() => { setChosen(turn); api.get(path + "/metrics", { branch }).then((found) => setTurns(found.metrics), () => {}); }, [conversation, branch, turn]);
  if (!turn) return html`<p class="quiet">${t("noTurn")}</p>`;
  const View = VIEWS[tab];
  const onKey = (event) => {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!step) return;
    const next = TABS[(TABS.indexOf(tab) + step + TABS.length) % TABS.length];
    setTab(next);
    document.getElementById("tab-" + next).focus();
  };
  return html`<div class="inspector">
    <${Turns} turns=${turns} chosen=${chosen} onChoose=${(id) => { sessionStorage.setItem("turn:" + conversation, id); setChosen(id); }} />
    <div role="tablist" aria-label=${t("inspector")} onKeyDown=${onKey}>${TABS.map((each) => html`<button role="tab" tabindex=${tab === each ? 0 : -1}
      id=${"tab-" + each} aria-selected=${tab === each} aria-controls="inspected" onClick=${() => setTab(each)}>${t("tab_" + each)}</button>`)}</div>
    <div role="tabpanel" id="inspected" tabindex="0" aria-labelledby=${"tab-" + tab}>
      <${View} conversation=${conversation} path=${path} branch=${branch} turn=${chosen} turns=${turns} key=${tab + chosen} /></div>
  </div>`;
}

// Step from turn to turn without going back to the chat.
function Turns({ turns, chosen, onChoose }) {
  const at = turns.findIndex((each) => each.turn === chosen);
  if (at < 0) return null;
  return html`<div class="row turns"><button aria-label=${t("earlierTurn")} disabled=${at < 1} onClick=${() => onChoose(turns[at - 1].turn)}>‹</button>
    <span>${t("turnOf", { number: at + 1, all: turns.length })} <small>${time(turns[at].at)}</small></span>
    <button aria-label=${t("laterTurn")} disabled=${at + 1 >= turns.length} onClick=${() => onChoose(turns[at + 1].turn)}>›</button></div>`;
}

// Return the parts of the model's window in the order in which a request has them: [name, tokens].
export function findParts({ metrics, message, window, reserved }) {
  const { total, history, summary, brief, outline, recall } = metrics;
  const own = Math.min(message, history);
  // With a brief or outlines, the rest of the head is their frame.
  const alone = brief || outline ? 0 : summary;
  const parts = { system: Math.max(0, total - history - (alone || brief + outline) - recall), brief, outline, summary: alone,
    history: history - own, recall, message: own };
  if (window) Object.assign(parts, { reserved: Math.min(reserved, Math.max(0, window - total)), free: Math.max(0, window - total - reserved) });
  return Object.entries(parts).filter(([, tokens]) => tokens > 0);
}

function Scale({ value, most, children }) {
  return html`<div class="scale"><svg class="bar" viewBox="0 0 100 4" preserveAspectRatio="none" aria-hidden="true"><rect class="whole" width="100" height="4" /><rect width=${Math.min(100, (100 * value) / most)} height="4" /></svg>
    <small>${children}</small></div>`;
}

function Context({ conversation, path, branch, turn }) {
  return html`<${Loaded} values=${[turn]} read=${() => api.get(`${path}/turns/${turn}/manifest`, { branch })} draw=${(manifest) => {
    const { metrics, runs, window, limit, policy, rules } = manifest;
    if (!metrics) return html`<p class="quiet">${t("nothingSent")}</p>`;
    const parts = findParts(manifest);
    const { usage } = metrics;
    const sent = parts.filter(([name]) => name !== "free" && name !== "reserved");
    return html`
      <p>${t("sentTokens", { total: count(metrics.total), model: metrics.model })}.
        ${usage.input ? " " + t("reported", { input: count(usage.input), cached: count(usage.cached), output: count(usage.output) }) : ""}
        ${" " + (metrics.cost === null ? t("costUnknown") : t("costs", { cost: dollars(metrics.cost) }))}</p>
      <div class="parts" aria-hidden="true">${sent.map(([name, tokens]) => html`<span class=${"part " + name} style=${{ flexGrow: tokens }} />`)}</div>
      ${limit !== null && html`<${Scale} value=${metrics.total} most=${limit}>${t("ofLimit", { total: count(metrics.total), limit: count(limit) })}<//>`}
      ${window && html`<${Scale} value=${metrics.total} most=${window}>${t("ofTheWindow", { total: count(metrics.total), window: count(window) })}<//>`}
      <table class="legend"><tbody>${parts.map(([name, tokens]) => html`<tr key=${name}><th scope="row"><span class=${"part " + name} /> ${t("part_" + name)}</th><td>${count(tokens)}</td></tr>`)}</tbody></table>
      ${policy && html`<p class="quiet">${t(rules.length ? "policyRules" : "policyOnly", { policy, rules: rules.join("; ") })}</p>`}
      <h3>${t("everyEntry")}</h3>
      <${Find} conversation=${conversation} path=${path} branch=${branch} runs=${runs} />
      <ul class="runs">${runs.map((run) => html`<${Run} run=${run} conversation=${conversation} path=${path} branch=${branch} key=${run.first} />`)}</ul>`;
  }} />`;
}

// Look up whether the model saw a message: its words lead to its verdict.
function Find({ conversation, path, branch, runs }) {
  const [words, setWords] = useState("");
  const [hits, setHits] = useState(null);
  useEffect(() => {
    let current = true;
    const later = setTimeout(async () => {
      const found = words.trim() ? (await api.get("/search", { q: words, conversation, limit: 5 }).catch(() => ({ hits: [] }))).hits : null;
      if (current) setHits(found);
    }, 200);
    return () => { current = false; clearTimeout(later); };
  }, [words]);
  const runOf = (hit) => runs.find((run) => run.first <= hit.position && hit.position <= run.last);
  return html`<input class="wide" type="search" aria-label=${t("findSeen")} placeholder=${t("findSeen")} value=${words} onInput=${(e) => setWords(e.target.value)} />
    <div role="status">${hits && (hits.length ? html`<ul class="runs">${hits.map((hit) => {
      const run = runOf(hit);
      return run ? html`<${Run} key=${hit.entry} run=${{ ...run, first: hit.position, last: hit.position, tokens: 0 }} excerpt=${cut(hit.text, 120)} conversation=${conversation} path=${path} branch=${branch} />`
        : html`<li key=${hit.entry}><span class="verdict">${t("verdict_later")}</span> ${cut(hit.text, 120)}</li>`;
    })}</ul><hr />` : html`<p class="quiet">${t("noHit")}</p>`)}</div>`;
}

function Recall({ conversation, path, branch, turn }) {
  const read = async () => (await api.get(`${path}/turns/${turn}/recalled`, { branch })).recalled;
  return html`<${Loaded} values=${[turn]} read=${read} draw=${(found) => found.length
    ? html`<p class="quiet">${t("recallHelp")}</p><ul class="runs">${found.map((each) => html`<${Run} key=${each.position} opened=${true} conversation=${conversation} path=${path} branch=${branch}
        run=${{ first: each.position, last: each.position, verdict: "recalled", tokens: 0, reason: (each.score ? t("score", { score: each.score.toFixed(2) }) : t("neighbour"))
          + (each.words.length ? " · " + t("sharedWords", { words: each.words.join(", ") }) : "") }} />`)}</ul>`
    : html`<p class="quiet">${t("nothingRecalled")}</p>`} />`;
}
