// Money: tokens and cost of a conversation turn by turn, or of all of them day by day, beside what sending everything
// would have cost.
import { html, useEffect, useState } from "../ui.js";
import { t } from "../strings.js";
import * as api from "../api.js";
import { count, day as formatDay, dollars, percent, time } from "../format.js";
import { Chart } from "./chart.js";
import { Compare } from "./compare.js";

const page = 50;
const amount = (value) => (value === null || value === undefined ? t("unknown") : dollars(value));
const about = (isEstimate, text) => (isEstimate ? t("about", { amount: text }) : text);
const sum = (list, pick) => list.reduce((total, each) => total + (pick(each) || 0), 0);
const sumKnown = (list, pick) => (list.some((each) => pick(each) !== null) ? sum(list, pick) : null);

export function Money({ conversation, branch = "main" }) {
  return html`<div class="view" tabindex="0"><div class="column pad broad">
    ${conversation ? html`<${One} key=${conversation + "/" + branch} conversation=${conversation} branch=${branch} />` : html`<${All} />`}</div></div>`;
}

function useLoaded(read) {
  const [state, setState] = useState({ found: null, problem: "" });
  const load = () => read().then((found) => setState({ found, problem: "" }), (error) => setState({ found: null, problem: error.message }));
  useEffect(() => { load(); }, []);
  if (state.found) return [state.found, null];
  return [null, state.problem ? html`<p class="problem" role="alert">${state.problem} <button onClick=${load}>${t("retry")}</button></p>`
    : html`<p class="quiet" role="status">${t("loading")}</p>`];
}

// `list` are turns or days: {usage, cost, replay, plain, cached, turns, unpriced, estimated}. Amounts compare the priced turns only.
function Figures({ list }) {
  const input = sum(list, (each) => each.usage.input);
  const estimated = sum(list, (each) => each.estimated);
  const paid = sumKnown(list, (each) => each.cost);
  const figures = [["turns", count(sum(list, (each) => each.turns))], ["promptTokens", about(estimated, count(input))], ["answerTokens", about(estimated, count(sum(list, (each) => each.usage.output)))],
    ["cachedShare", input ? percent(sum(list, (each) => each.usage.cached), input) : "–"], ["cost", about(estimated && paid, amount(paid))]];
  const unpriced = sum(list, (each) => each.unpriced);
  const whole = sumKnown(list, (each) => each.cached);
  return html`${paid === 0 && !unpriced && html`<p class="lead">${t("saidFree")}</p>`}
    ${paid > 0 && whole > 0 && html`<p class="lead">${t(whole > paid ? "saidPaid" : "saidPaidMore", { cost: about(estimated, dollars(paid)), whole: dollars(whole), percent: Math.round(100 * (whole / paid - 1)) })}</p>`}
    <dl class="figures">${figures.map(([name, value]) => html`<div><dt>${t(name)}</dt><dd>${value}</dd></div>`)}</dl>
    ${estimated > 0 && html`<p class="quiet">${t("estimatedTurns", { count: estimated })}</p>`}
    ${unpriced > 0 && html`<p class="quiet">${t("unpriced", { count: unpriced })}</p>`}`;
}

// Charts and a table of turns or days, newest row first.
function Usage({ list, name, first, more = [], see = null }) {
  const [rows, setRows] = useState(page);
  const titles = list.map(name);
  const priced = list.some((each) => each.cost > 0);
  return html`
    <h2>${t("promptTokens")}</h2><p class="quiet">${t("replayHelp")}</p><${Chart} label=${t("promptTokens")} titles=${titles} format=${(value) => (value === null ? "–" : count(value))}
      bars=${{ name: t("sent"), values: list.map((each) => each.usage.input), part: list.map((each) => each.usage.cached), partName: t("fromCache") }}
      lines=${[{ name: t("plainReplay"), values: list.map((each) => each.replay.input) }, { name: t("uncachedReplay"), values: list.map((each) => each.replay.input - each.replay.cached) }]} />
    ${priced ? html`<h2>${t("cost")}</h2><${Chart} label=${t("cost")} titles=${titles} format=${dollars} bars=${{ name: t("paid"), values: list.map((each) => each.cost) }}
        lines=${[{ name: t("plainReplay"), values: list.map((each) => each.plain) }, { name: t("cachedReplay"), values: list.map((each) => each.cached) }]} />`
      : list.some((each) => each.cost === null) && html`<p class="quiet">${t("noPrices")}</p>`}
    <table tabindex="0"><caption class="sr">${t("numbers")}</caption><thead><tr><th scope="col">${first}</th>${more.map(([label]) => html`<th scope="col">${label}</th>`)}
      ${["cost", "promptTokens", "cachedShare", "answerTokens", "plainReplay", "cachedReplay"].map((each) => html`<th scope="col">${t(each)}</th>`)}</tr></thead>
      <tbody>${list.slice(-rows).reverse().map((each, i) => html`<tr key=${i}><td>${see ? html`<a ...${see(list.length - 1 - i)}>${name(each)}</a>` : name(each)}</td>${more.map(([, pick]) => html`<td>${pick(each)}</td>`)}<td>${about(each.estimated && each.cost, dollars(each.cost))}</td><td>${about(each.estimated, count(each.usage.input))}</td>
        <td>${each.usage.input ? percent(each.usage.cached, each.usage.input) : "–"}</td><td>${about(each.estimated, count(each.usage.output))}</td><td>${dollars(each.plain)}</td><td>${dollars(each.cached)}</td></tr>`)}</tbody></table>
    ${rows < list.length && html`<p><button onClick=${() => setRows(rows + 200)}>${t("moreRows")}</button></p>`}`;
}

function All() {
  const [found, waits] = useLoaded(() => api.get("/stats/daily"));
  return html`<h1>${t("moneyAll")}</h1><p class="quiet">${t("noSamples")}</p>
    ${waits || (found.days.length ? html`<${Figures} list=${found.days} />
      <${Usage} list=${found.days} name=${(each) => formatDay(new Date(each.day + "T12:00"))} first=${t("day")} more=${[[t("turns"), (each) => count(each.turns)]]} />`
      : html`<p class="card-note">${t("noTurnsAll")}</p>`)}`;
}

// Join the figures of each turn with those of its replay. A turn without a price is left out of all amounts.
function join(metrics, replays) {
  const byTurn = new Map(replays.map((each) => [each.turn, each]));
  return metrics.map((each) => {
    const { usage, plain, cached } = byTurn.get(each.turn) || { usage: each.usage, plain: null, cached: null };
    const known = each.cost !== null;
    return { ...each, turns: 1, unpriced: known ? 0 : 1, estimated: each.estimated ? 1 : 0, replay: usage, plain: known ? plain : null, cached: known ? cached : null };
  });
}

function One({ conversation, branch }) {
  const path = api.one(conversation);
  const [found, waits] = useLoaded(() => Promise.all([...["metrics", "receipts", "replay"].map((part) => api.get(`${path}/${part}`, { branch })), api.get(path + "/branches")]));
  if (waits) return html`<h1>${t("moneyOne")}</h1>${waits}`;
  const [{ metrics }, { receipts }, replay, { branches }] = found;
  const list = join(metrics, replay.turns);
  const paid = sumKnown(list, (each) => each.cost);
  const see = (index) => ({ href: `#/c/${encodeURIComponent(conversation)}/inspector`, title: t("seeTurn", { number: index + 1 }), onClick: () => sessionStorage.setItem("turn:" + conversation, list[index].turn) });
  return html`<h1>${t("moneyOne")}</h1>${branches.length > 1 && html`<p class="quiet">${t("ofBranch", { count: branches.length })}</p>`}
    ${!list.length ? html`<p class="card-note">${t("noTurns")}</p>` : html`<${Figures} list=${list} />
      <${Compare} conversation=${conversation} path=${path} branch=${branch} made=${list.length} paid=${paid} paidText=${about(sum(list, (each) => each.estimated), dollars(paid))}
        priced=${[...new Set(list.filter((each) => each.cost > 0).map((each) => each.model).reverse())]} />
      <${Usage} list=${list} name=${(each) => time(each.at)} first=${t("turn")} see=${see} />
      ${receipts.length > 0 && html`<${Receipts} receipts=${receipts} />`}`}`;
}

function Receipts({ receipts }) {
  const [saved, cost, predicted] = [(each) => each.saved || 0, (each) => each.actual ?? each.predicted, (each) => each.predicted].map((pick) => sum(receipts, pick));
  const net = saved - cost;
  const money = (each, tokens) => (tokens === undefined || tokens === null ? "–" : each.ratios?.unit ? dollars(tokens * each.ratios.unit) : t("tokenCount", { count: count(tokens) }));
  return html`<h2>${t("receipts")}</h2><p class="quiet">${t("receiptsHelp")} ${t(net >= 0 ? "netSaved" : "netLost", { saved: money(receipts[0], saved), cost: money(receipts[0], cost), amount: money(receipts[0], Math.abs(net)) })}</p>
    <table tabindex="0"><thead><tr>${["turn", "tokensBefore", "tokensAfter", "predicted", "actual", "savedSoFar"].map((name) => html`<th scope="col">${t(name)}</th>`)}</tr></thead>
      <tbody>${[...receipts].reverse().map((each, i) => html`<tr key=${i} title=${each.reason}><td>${time(each.at)}</td><td>${count(each.before)}</td><td>${count(each.after)}</td>
        <td>${money(each, each.predicted)}</td><td>${money(each, each.actual)}</td><td>${money(each, each.calls ? each.saved : null)}</td></tr>`)}</tbody>
      ${receipts.length > 1 && html`<tfoot><tr><th scope="row">${t("inSumRow")}</th><td /><td /><td>${money(receipts[0], predicted)}</td><td>${money(receipts[0], cost)}</td><td>${money(receipts[0], saved)}</td></tr></tfoot>`}</table>`;
}
