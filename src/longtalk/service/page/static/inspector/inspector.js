// The context inspector: what a turn sent, what it left out and why, and what it cost.
import { html, useEffect, useState } from "../ui.js";
import { t } from "../strings.js";
import * as api from "../api.js";
import { count, countHistory, cut, dollars, nameReason, nameRecall, time } from "../format.js";
import { LacksKey } from "../chat/gauge.js";
import { namePolicy } from "../money/policies.js";
import { Find } from "./find.js";
import { Loaded, Runs } from "./runs.js";
import { Compaction } from "./compaction.js";
import { Request } from "./request.js";

const TABS = ["context", "request", "recall", "compaction"];
const VIEWS = { context: Context, request: Request, recall: Recall, compaction: Compaction };

// Load what the next turn would send, with the message that stands in the field.
function readNext(conversation, path, branch, choice) {
  const draft = localStorage.getItem("draft:" + conversation) || "";
  const policy = sessionStorage.getItem("policy:" + conversation);
  return api.post(path + "/preview", { branch, message: draft || "…", ...(policy && { policy }), ...choice });
}

export function Inspector({ conversation, branch, turn, size, lastTools, tab: asked, gauge, choice, onTurn, onChange }) {
  const [tab, chooseTab] = useState(TABS.includes(asked) ? asked : sessionStorage.getItem("inspector") || TABS[0]);
  const setTab = (each) => { sessionStorage.setItem("inspector", each); chooseTab(each); };
  useEffect(() => { if (TABS.includes(asked)) setTab(asked); }, [asked]);
  const [turns, setTurns] = useState([]);
  const [words, setWords] = useState(""); // what is looked for, in whichever turn
  const path = api.one(conversation);
  const last = turn === "next" ? null : turn;
  useEffect(() => { api.get(path + "/metrics", { branch }).then((found) => setTurns(found.metrics), () => {}); }, [conversation, branch, last, size]);
  const isNext = !turn || turn === "next";
  const chosen = isNext ? "next" : turn;
  const load = { turn: chosen, next: isNext && (() => readNext(conversation, path, branch, choice)), values: isNext ? [gauge, branch] : [chosen, branch, size] };
  const View = VIEWS[tab];
  const onKey = (event) => {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!step) return;
    const next = TABS[(TABS.indexOf(tab) + step + TABS.length) % TABS.length];
    setTab(next);
    document.getElementById("tab-" + next).focus();
  };
  return html`<div class="inspector">
    <${Turns} turns=${turns} chosen=${chosen} onChoose=${onTurn} />
    <${About} conversation=${conversation} path=${path} branch=${branch} turn=${chosen} gauge=${gauge} key=${chosen} />
    <div role="tablist" aria-label=${t("inspector")} onKeyDown=${onKey}>${TABS.map((each) => html`<button role="tab" tabindex=${tab === each ? 0 : -1}
      id=${"tab-" + each} aria-selected=${tab === each} aria-controls="inspected" onClick=${() => setTab(each)}>${t("tab_" + each)}</button>`)}</div>
    <div role="tabpanel" id="inspected" tabindex="0" aria-labelledby=${"tab-" + tab}>
      <${View} conversation=${conversation} path=${path} branch=${branch} ...${load} lastTools=${lastTools} turns=${turns} words=${words} setWords=${setWords} onChange=${onChange} key=${tab + chosen} /></div>
  </div>`;
}

// Step from turn to turn, and to the request that is not sent yet, without going back to the chat.
function Turns({ turns, chosen, onChoose }) {
  const isNext = chosen === "next";
  const at = isNext ? turns.length : turns.findIndex((each) => each.turn === chosen);
  if (at < 0) return null;
  const go = (number) => onChoose(turns[number]?.turn || "next");
  return html`<div class="row turns"><button aria-label=${t("earlierTurn")} disabled=${at < 1} onClick=${() => go(at - 1)}>‹</button>
    <span>${isNext ? html`${t("nextRequest")} <small>${t("notSent")}</small>` : html`${t("turnOf", { number: at + 1, all: turns.length })} <small>${time(turns[at].at)}</small>`}</span>
    <button aria-label=${t("laterTurn")} title=${at + 1 >= turns.length ? t("nextRequest") : null} disabled=${isNext} onClick=${() => go(at + 1)}>${at + 1 === turns.length ? html`<span aria-hidden="true">${t("nextRequest")} </span>` : ""}›</button></div>`;
}

// Which turn it is: its message.
function About({ conversation, path, branch, turn }) {
  const [text, setText] = useState("");
  useEffect(() => {
    let current = true;
    if (turn !== "next") api.get(`${path}/turns/${turn}`, { branch }).then(({ entries }) => current && setText(entries.find((each) => each.role === "user")?.text || ""), () => {});
    return () => { current = false; };
  }, [turn, branch]);
  const draft = turn === "next" && localStorage.getItem("draft:" + conversation);
  if (turn === "next") return html`<p class="quiet about">${draft ? t("nextWith", { text: cut(draft, 90) }) : t("nextWithout")}</p>`;
  return html`<p class="quiet about">${text && t("inspectedMessage", { text: cut(text, 90) })}</p>`;
}

// Return the parts of the model's window in the order in which a request has them: [name, tokens].
export function findParts({ metrics, message, window, reserved }) {
  const { total, history, summary, brief, outline, recall } = metrics;
  const own = Math.min(message, history);
  // With a brief or outlines, the rest of the head is their frame, which is history too.
  const alone = brief || outline ? 0 : summary;
  const frame = alone ? 0 : Math.max(0, summary - brief - outline);
  const parts = { system: Math.max(0, total - history - (alone || brief + outline + frame) - recall), brief: brief && brief + frame, outline: brief ? outline : outline + frame, summary: alone,
    history: history - own, recall, message: own };
  if (window) Object.assign(parts, { reserved: Math.min(reserved, Math.max(0, window - total)), free: Math.max(0, window - total - reserved) });
  return Object.entries(parts).filter(([, tokens]) => tokens > 0);
}

function Scale({ value, most, children }) {
  return html`<div class="scale"><svg class="bar" viewBox="0 0 100 4" preserveAspectRatio="none" aria-hidden="true"><rect class="whole" width="100" height="4" /><rect width=${Math.min(100, (100 * value) / most)} height="4" /></svg>
    <small>${children}</small></div>`;
}

function Context({ conversation, path, branch, turn, next, values, lastTools, words, setWords, onChange }) {
  const read = () => (next ? next().then((found) => found.manifest) : api.get(`${path}/turns/${turn}/manifest`, { branch }));
  return html`<${Loaded} values=${values} read=${read} draw=${(manifest) => {
    const { metrics, runs, window, limit, history_limit: ofHistory, policy, rules, system, tools } = manifest;
    if (!metrics) return html`<p class="quiet">${t("nothingSent")}</p>`;
    if (!next && metrics.status === "running" && !runs.length) return html`<p class="quiet" role="status">${t("stillRuns")}</p>`;
    const history = countHistory(metrics.total, manifest);
    const parts = findParts(manifest);
    const { usage } = metrics;
    const sent = parts.filter(([name]) => name !== "free" && name !== "reserved");
    return html`
      <${Find} conversation=${conversation} path=${path} branch=${branch} turn=${turn} next=${next} runs=${runs} policy=${policy} words=${words} setWords=${setWords} onChange=${onChange} />
      ${manifest.lacks_key && html`<${LacksKey} model=${metrics.model} provider=${manifest.lacks_key} />`}
      <p>${t(next ? "nextTokens" : "sentTokens", { total: count(metrics.total), model: metrics.model })}.
        ${usage.input && !metrics.estimated ? " " + t("reported", { input: count(usage.input), cached: count(usage.cached), output: count(usage.output) }) + (metrics.calls > 1 ? " " + t("inRequests", { calls: metrics.calls }) : "") : ""}
        ${" " + (metrics.cost === null ? t("costUnknown") : t(next ? (metrics.cost ? "nextCosts" : "nextIsFree") : "costs", { cost: metrics.estimated && metrics.cost ? t("about", { amount: dollars(metrics.cost) }) : dollars(metrics.cost) }))}</p>
      <div class="parts" aria-hidden="true">${sent.map(([name, tokens]) => html`<span class=${"part " + name} style=${{ flexGrow: tokens }} />`)}</div>
      ${ofHistory !== null ? html`<${Scale} value=${history} most=${ofHistory}>${t("ofHistoryLimit", { history: count(history), limit: count(ofHistory) })}<//>`
        : limit !== null && html`<${Scale} value=${metrics.total} most=${limit}>${t("ofLimit", { total: count(metrics.total), limit: count(limit) })}<//>`}
      ${window && html`<${Scale} value=${metrics.total} most=${window}>${t("ofTheWindow", { total: count(metrics.total), window: count(window) })}<//>`}
      <table class="legend"><tbody>${parts.map(([name, tokens]) => html`<tr key=${name}><th scope="row"><span class=${"part " + name} /> ${t("part_" + name)}</th><td>${count(tokens)}</td></tr>`)}</tbody></table>
      <details class="fold"><summary>${t("instructions")}</summary>${system ? html`<pre>${system}</pre>` : html`<p class="quiet">${t("noInstructions")}</p>`}
        ${tools.length > 0 && html`<p class="quiet">${t("toolsOffered", { names: tools.join(", ") })}</p>`}</details>
      ${next && lastTools.length > 0 && html`<p class="quiet">${t("toolsNotOffered", { names: lastTools.join(", ") })}</p>`}
      ${policy && html`<p class="quiet" title=${policy}>${t(rules.length ? "policyRules" : "policyOnly", { policy: namePolicy(policy), rules: rules.map(nameReason).join(t("orRule")) })}</p>`}
      ${metrics.recall_why && (!next || localStorage.getItem("draft:" + conversation)) && html`<p class="quiet">${nameRecall(metrics.recall_why)}</p>`}
      <h3>${t("everyEntry")}</h3>
      <${Runs} runs=${runs} isNext=${!!next} conversation=${conversation} path=${path} branch=${branch} />`;
  }} />`;
}

// Recalled messages of a request that is not sent yet, in their order: their scores are not stored.
const listRecalled = ({ manifest }) => manifest.runs.filter((run) => run.verdict === "recalled")
  .flatMap((run) => Array.from({ length: run.last - run.first + 1 }, (_, i) => ({ position: run.first + i, score: null, words: [] })));

function Recall({ conversation, path, branch, turn, next, values }) {
  const toRun = ({ position, score, words }) => ({ first: position, last: position, verdict: "recalled", tokens: 0,
    reason: t(next ? "reason_fits the message" : score ? "score" : "neighbour") + (words.length ? " · " + t("sharedWords", { words: words.join(", ") }) : "") });
  const read = async () => (next ? listRecalled(await next()) : (await api.get(`${path}/turns/${turn}/recalled`, { branch })).recalled).map(toRun);
  return html`<${Loaded} values=${values} read=${read} draw=${(found) => found.length
    ? html`<p class="quiet">${t("recallHelp")}</p><${Runs} runs=${found} opened=${true} conversation=${conversation} path=${path} branch=${branch} />`
    : html`<p class="quiet">${t("nothingRecalled")}</p>`} />`;
}
