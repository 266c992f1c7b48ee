// What other policies would have cost in this conversation, as a chart and as a list that recommends the cheapest of those that lose nothing.
import { html, useState } from "../ui.js";
import { t } from "../strings.js";
import * as api from "../api.js";
import { count, dollars } from "../format.js";
import { Chart } from "./chart.js";
import { choosePolicy, describe, keepsAll } from "./policies.js";
import { app, useStore } from "../store.js";

const policies = ["KeepAll()", "KeepLast(10)", "TokenBudget(8_000)", "Summarize(8_000)", "Economy()", "Memory()"];

export function Compare({ conversation, path, branch }) {
  const [state, setState] = useState({});
  const [other, setOther] = useState("");
  const { models: served, providers } = useStore(app);
  const run = async () => {
    setState({ busy: true });
    try {
      const { policy, model } = await api.get(path + "/settings", { branch });
      const own = policy && !policies.includes(policy) ? policy : null;
      const ask = (list, models) => api.post(path + "/simulate", { policies: list, branch, models: [...new Set(models)].filter(Boolean) });
      // A policy with parts from outside the library can't be simulated here, nor a model that the library does not know.
      const askWithOwn = (models) => (own ? ask([...policies, own], models).catch(() => ask(policies, models)) : ask(policies, models));
      const { runs } = await askWithOwn([model, other]).catch(() => askWithOwn([other]));
      setState({ runs, policy });
    } catch (error) {
      setState({ problem: error.message });
    }
  };
  const models = [...new Set((state.runs || []).map((each) => each.model))];
  return html`<section aria-label=${t("compare")}>
    <h2>${t("payLess")}</h2><p class="quiet">${t("compareHelp")}</p>
    <p class="row start"><button class="primary" disabled=${!!state.busy} onClick=${run}>${t("compare")}</button>
      <input list="priced" aria-label=${t("alsoModel")} placeholder=${t("alsoModel")} value=${other} onInput=${(e) => setOther(e.target.value.trim())} /> <small role="status">${state.busy ? t("comparing") : ""}</small></p>
    <datalist id="priced">${[...served.map((each) => each.label).filter(Boolean), ...providers.flatMap((each) => each.models)].map((name) => html`<option value=${name} />`)}</datalist>
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
  // Where all is free of charge, tokens tell policies apart.
  const priced = whole.every((each) => each.cost !== null) && whole.some((each) => each.cost > 0);
  const value = (each) => (priced ? each.cost : each.usage.input);
  const cheapest = whole.reduce((a, b) => (value(b) < value(a) ? b : a));
  const keeping = whole.filter((each) => keepsAll(each.policy));
  const best = (keeping.length ? keeping : whole).reduce((a, b) => (value(b) < value(a) ? b : a));
  const all = whole.find((each) => each.policy === "KeepAll()");
  const most = Math.max(...whole.map(value)) || 1;
  const save = (run) => (all && value(all) ? Math.round(100 * (1 - value(run) / value(all))) : 0);
  const sentence = save(best) > 0 ? t(best.policy === own ? "ownBest" : "cheapest", { policy: best.policy, percent: save(best) }) : t("keepAllBest");
  const turns = [...new Set(whole[0].calls.map((call) => call.turn))];
  const lines = whole.map((run) => ({ name: run.policy, values: addUp(run, turns, (call) => (priced ? call.cost : call.usage.input)) }));
  return html`<h3>${model}</h3><p><strong>${sentence}</strong> ${cheapest !== best && save(cheapest) > 0 ? t("cheaperButLossy", { policy: cheapest.policy, percent: save(cheapest), loses: describe(cheapest.policy) }) : ""} <small>${t("sameRules")}</small></p>
    ${whole.some((each) => each.cost === null) && html`<p class="quiet">${t("noPrices")}</p>`}
    <h3>${t(priced ? "costSoFar" : "tokensSoFar")}</h3>
    <${Chart} lines=${lines} titles=${turns.map((_, i) => t("turnNumber", { number: i + 1 }))} label=${t(priced ? "costSoFar" : "tokensSoFar")} format=${priced ? dollars : (value) => (value === null ? "–" : count(value))} sums=${false} />
    <ul class="policies">${[...listed].sort((a, b) => (b === best) - (a === best) || value(a) - value(b)).map((each) => html`<li key=${each.policy} class=${each === best ? "best" : ""}><span>${each.policy}${each.policy === own ? html` <small class="chip">${t("yours")}</small>` : ""}${each === best ? html` <small class="chip">${t("recommended")}</small>` : ""}<small class="does">${describe(each.policy)}</small></span>
      ${each.problem ? html`<span class="problem">${each.problem}</span><span /><span />` : html`<svg class="bar" viewBox="0 0 100 4" preserveAspectRatio="none" aria-hidden="true"><rect width=${(100 * value(each)) / most} height="4" /></svg>
        <span>${priced ? dollars(each.cost) + " · " : ""}${t("tokenCount", { count: count(each.usage.input) })}</span>
        ${each.policy === own ? html`<span />` : html`<button aria-label=${t("usePolicyOf", { policy: each.policy })} onClick=${() => choosePolicy(conversation, each.policy)}>${t("usePolicy")}</button>`}`}</li>`)}</ul>`;
}
