// Money: tokens and cost of a conversation turn by turn, or of all of them day by day, and what other policies would cost.
import { html, useEffect, useState } from "../ui.js";
import { t } from "../strings.js";
import * as api from "../api.js";
import { Bars, CachedKey } from "./chart.js";

const policies = ["KeepAll()", "KeepLast(10)", "TokenBudget(8000)", "Economy()", "Memory()"];
const page = 50;
const count = (value) => Math.round(value).toLocaleString();
const dollars = (value) => (value === null || value === undefined ? "–" : (value < 0 ? "−$" : "$") + Math.abs(value).toFixed(value && Math.abs(value) < 1 ? 4 : 2));
const percent = (part, all) => (all ? Math.round((100 * part) / all) : 0) + " %";
const when = (at) => new Date(at).toLocaleString(undefined, { dateStyle: "medium", timeStyle: "short" });
const sum = (list, pick) => list.reduce((total, each) => total + (pick(each) || 0), 0);
const sumCost = (list) => (list.some((each) => each.cost !== null) ? sum(list, (each) => each.cost) : null);

export function Money({ conversation, branch = "main" }) {
  return html`<div class="view" tabindex="0"><div class="column pad">
    ${conversation ? html`<${One} key=${conversation + "/" + branch} path=${api.one(conversation)} branch=${branch} />` : html`<${All} />`}</div></div>`;
}

function useLoaded(read) {
  const [state, setState] = useState({ found: null, problem: "" });
  const load = () => read().then((found) => setState({ found, problem: "" }), (error) => setState({ found: null, problem: error.message }));
  useEffect(() => { load(); }, []);
  if (state.found) return [state.found, null];
  return [null, state.problem ? html`<p class="problem" role="alert">${state.problem} <button onClick=${load}>${t("retry")}</button></p>`
    : html`<p class="quiet" role="status">${t("loading")}</p>`];
}

function Figures({ list, turns }) {
  const input = sum(list, (each) => each.usage.input);
  const figures = [["turns", count(turns)], ["promptTokens", count(input)], ["answerTokens", count(sum(list, (each) => each.usage.output))],
    ["cachedShare", percent(sum(list, (each) => each.usage.cached), input)], ["cost", dollars(sumCost(list))]];
  return html`<dl class="figures">${figures.map(([name, value]) => html`<div><dt>${t(name)}</dt><dd>${value}</dd></div>`)}</dl>`;
}

// Charts and a table of turns or days, newest row first.
function Usage({ list, name, first, more = [] }) {
  const [rows, setRows] = useState(page);
  const priced = list.some((each) => each.cost !== null);
  const bars = list.map((each) => ({ value: each.usage.input, part: each.usage.cached, title: `${name(each)}: ${count(each.usage.input)}, ${t("fromCache")} ${percent(each.usage.cached, each.usage.input)}` }));
  return html`
    <h2>${t("promptTokens")}</h2><${Bars} bars=${bars} label=${t("promptTokens")} format=${count} /><${CachedKey} />
    ${priced ? html`<h2>${t("cost")}</h2><${Bars} bars=${list.map((each) => ({ value: each.cost || 0, title: `${name(each)}: ${dollars(each.cost)}` }))} label=${t("cost")} format=${dollars} />`
      : html`<p class="quiet">${t("noPrices")}</p>`}
    <table tabindex="0"><caption class="sr">${t("numbers")}</caption><thead><tr><th scope="col">${first}</th>${more.map(([label]) => html`<th scope="col">${label}</th>`)}
      <th scope="col">${t("promptTokens")}</th><th scope="col">${t("cachedShare")}</th><th scope="col">${t("answerTokens")}</th><th scope="col">${t("cost")}</th></tr></thead>
      <tbody>${list.slice(-rows).reverse().map((each) => html`<tr><td>${name(each)}</td>${more.map(([, pick]) => html`<td>${pick(each)}</td>`)}<td>${count(each.usage.input)}</td>
        <td>${percent(each.usage.cached, each.usage.input)}</td><td>${count(each.usage.output)}</td><td>${dollars(each.cost)}</td></tr>`)}</tbody></table>
    ${rows < list.length && html`<p><button onClick=${() => setRows(rows + 200)}>${t("moreRows")}</button></p>`}`;
}

function All() {
  const [found, waits] = useLoaded(() => api.get("/stats/daily"));
  return html`<h1>${t("moneyAll")}</h1>
    ${waits || (found.days.length ? html`<${Figures} list=${found.days} turns=${sum(found.days, (each) => each.turns)} />
      <${Usage} list=${found.days} name=${(each) => each.day} first=${t("day")} more=${[[t("turns"), (each) => count(each.turns)]]} />
      ${sum(found.days, (each) => each.unpriced) > 0 && html`<p class="quiet">${t("unpriced", { count: sum(found.days, (each) => each.unpriced) })}</p>`}`
      : html`<p class="card-note">${t("noTurns")}</p>`)}`;
}

function One({ path, branch }) {
  const [found, waits] = useLoaded(() => Promise.all([api.get(path + "/metrics", { branch }), api.get(path + "/receipts", { branch })]));
  if (waits) return html`<h1>${t("moneyOne")}</h1>${waits}`;
  const [{ metrics }, { receipts }] = found;
  return html`<h1>${t("moneyOne")}</h1>
    ${!metrics.length ? html`<p class="card-note">${t("noTurns")}</p>` : html`<${Figures} list=${metrics} turns=${metrics.length} />
      <${Compare} path=${path} branch=${branch} />
      ${receipts.length > 0 && html`<${Receipts} receipts=${receipts} />`}
      <${Usage} list=${metrics} name=${(each) => when(each.at)} first=${t("turn")} />`}`;
}

function Receipts({ receipts }) {
  const net = sum(receipts, (each) => (each.saved || 0) - (each.actual ?? each.predicted));
  const money = (each, tokens) => (tokens === undefined || tokens === null ? "–" : each.ratios?.unit ? dollars(tokens * each.ratios.unit) : count(tokens));
  return html`<h2>${t("receipts")}</h2><p class="quiet">${t("receiptsHelp")} ${t(net >= 0 ? "netSaved" : "netLost", { amount: money(receipts[0], Math.abs(net)) })}</p>
    <table tabindex="0"><thead><tr>${["turn", "tokensBefore", "tokensAfter", "predicted", "actual", "savedSoFar"].map((name) => html`<th scope="col">${t(name)}</th>`)}</tr></thead>
      <tbody>${[...receipts].reverse().map((each) => html`<tr title=${each.reason}><td>${when(each.at)}</td><td>${count(each.before)}</td><td>${count(each.after)}</td>
        <td>${money(each, each.predicted)}</td><td>${money(each, each.actual)}</td><td>${money(each, each.saved || 0)}</td></tr>`)}</tbody></table>`;
}

function Compare({ path, branch }) {
  const [state, setState] = useState({});
  const run = async () => {
    setState({ busy: true });
    await api.post(path + "/simulate", { policies, branch }).then(({ runs }) => setState({ runs }), (error) => setState({ problem: error.message }));
  };
  return html`<section aria-label=${t("compare")}>
    <button class="primary" disabled=${!!state.busy} onClick=${run}>${t("compare")}</button> <small>${state.busy ? t("comparing") : t("compareHelp")}</small>
    <div aria-live="polite">${state.problem && html`<p class="problem">${state.problem}</p>`}
    ${state.runs && [...new Set(state.runs.map((each) => each.model))].map((model) => html`<${Comparison} key=${model} model=${model} runs=${state.runs.filter((each) => each.model === model)} />`)}</div></section>`;
}

function Comparison({ model, runs }) {
  const whole = runs.filter((each) => each.policy !== "optimum" && !each.problem);
  if (!whole.length) return html`<p class="problem">${model}: ${runs[0].problem}</p>`;
  const priced = whole.every((each) => each.cost !== null);
  const value = (each) => (priced ? each.cost : each.usage.input);
  const best = whole.reduce((a, b) => (value(b) < value(a) ? b : a));
  const all = whole.find((each) => each.policy === "KeepAll()");
  const most = Math.max(...whole.map(value)) || 1;
  const saved = all && value(all) ? Math.round(100 * (1 - value(best) / value(all))) : 0;
  const sentence = saved > 0 ? t(priced ? "cheapest" : "fewest", { policy: best.policy, percent: saved }) : t("keepAllBest");
  return html`<p><strong>${sentence}</strong> <small>${model}. ${t("forgets")}</small></p>
    <ul class="policies">${runs.filter((each) => each.policy !== "optimum").map((each) => html`<li class=${each === best ? "best" : ""}><span>${each.policy}</span>
      ${each.problem ? html`<span class="problem">${each.problem}</span><span />` : html`<svg class="bar" viewBox="0 0 100 4" preserveAspectRatio="none" aria-hidden="true"><rect width=${(100 * value(each)) / most} height="4" /></svg>
        <span>${priced ? dollars(each.cost) + " · " : ""}${t("tokenCount", { count: count(each.usage.input) })}</span>`}</li>`)}</ul>`;
}
