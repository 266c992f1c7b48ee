// What other policies would have cost in this conversation, as a chart and as a list with the cheapest marked.
import { html, useState } from "../ui.js";
import { t } from "../strings.js";
import * as api from "../api.js";
import { count, dollars } from "../format.js";
import { Chart } from "./chart.js";

const policies = ["KeepAll()", "KeepLast(10)", "TokenBudget(8_000)", "Summarize(8_000)", "Economy()", "Memory()"];

export function Compare({ conversation, path, branch }) {
  const [state, setState] = useState({});
  const run = async () => {
    setState({ busy: true });
    try {
      const { policy } = await api.get(path + "/settings", { branch });
      const own = policy && !policies.includes(policy) ? policy : null;
      const ask = (list) => api.post(path + "/simulate", { policies: list, branch });
      // A policy with parts from outside the library can't be simulated here.
      const { runs } = await (own ? ask([...policies, own]).catch(() => ask(policies)) : ask(policies));
      setState({ runs, policy });
    } catch (error) {
      setState({ problem: error.message });
    }
  };
  const models = [...new Set((state.runs || []).map((each) => each.model))];
  return html`<section aria-label=${t("compare")}>
    <button class="primary" disabled=${!!state.busy} onClick=${run}>${t("compare")}</button> <small>${state.busy ? t("comparing") : t("compareHelp")}</small>
    <div aria-live="polite">${state.problem && html`<p class="problem">${state.problem}</p>`}
    ${models.map((model) => html`<${Comparison} key=${model} conversation=${conversation} own=${state.policy} model=${model} runs=${state.runs.filter((each) => each.model === model)} />`)}</div></section>`;
}

// The amounts of each turn, added up from turn to turn.
function addUp(run, turns, pick) {
  const byTurn = new Map();
  for (const call of run.calls) byTurn.set(call.turn, (byTurn.get(call.turn) || 0) + pick(call));
  let all = 0;
  return turns.map((turn) => (all += byTurn.get(turn) || 0));
}

function Comparison({ conversation, own, model, runs }) {
  const listed = runs.filter((each) => each.policy !== "optimum");
  const whole = listed.filter((each) => !each.problem);
  if (!whole.length) return html`<p class="problem">${model}: ${runs[0].problem}</p>`;
  const priced = whole.every((each) => each.cost !== null);
  const value = (each) => (priced ? each.cost : each.usage.input);
  const best = whole.reduce((a, b) => (value(b) < value(a) ? b : a));
  const all = whole.find((each) => each.policy === "KeepAll()");
  const most = Math.max(...whole.map(value)) || 1;
  const saved = all && value(all) ? Math.round(100 * (1 - value(best) / value(all))) : 0;
  const remembering = whole.filter((each) => /^(Summarize|Economy|Memory)\(/.test(each.policy)).sort((a, b) => value(a) - value(b))[0];
  const less = all && remembering ? Math.round(100 * (1 - value(remembering) / value(all))) : 0;
  const sentence = saved > 0 ? t(priced ? "cheapest" : "fewest", { policy: best.policy, percent: saved }) : t("keepAllBest");
  const turns = [...new Set(whole[0].calls.map((call) => call.turn))];
  const lines = whole.map((run) => ({ name: run.policy, values: addUp(run, turns, (call) => (priced ? call.cost : call.usage.input)) }));
  const use = (policy) => { sessionStorage.setItem("policy:" + conversation, policy); location.hash = "#/c/" + encodeURIComponent(conversation); };
  return html`<p><strong>${sentence}</strong> ${less > 0 && remembering !== best ? t("cheapestMemory", { policy: remembering.policy, percent: less }) : ""} <small>${model}. ${t("forgets")}</small></p>
    ${!priced && html`<p class="quiet">${t("noPrices")}</p>`}
    <h3>${t(priced ? "costSoFar" : "tokensSoFar")}</h3>
    <${Chart} lines=${lines} titles=${turns.map((_, i) => t("turnNumber", { number: i + 1 }))} label=${t(priced ? "costSoFar" : "tokensSoFar")} format=${priced ? dollars : (value) => (value === null ? "–" : count(value))} sums=${false} />
    <ul class="policies">${listed.map((each) => html`<li key=${each.policy} class=${each === best ? "best" : ""}><span>${each.policy}${each.policy === own ? html` <small>${t("yours")}</small>` : ""}</span>
      ${each.problem ? html`<span class="problem">${each.problem}</span><span /><span />` : html`<svg class="bar" viewBox="0 0 100 4" preserveAspectRatio="none" aria-hidden="true"><rect width=${(100 * value(each)) / most} height="4" /></svg>
        <span>${priced ? dollars(each.cost) + " · " : ""}${t("tokenCount", { count: count(each.usage.input) })}</span>
        ${each.policy === own ? html`<span />` : html`<button aria-label=${t("usePolicyOf", { policy: each.policy })} onClick=${() => use(each.policy)}>${t("usePolicy")}</button>`}`}</li>`)}</ul>`;
}
