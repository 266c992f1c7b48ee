// What other policies and models would have cost in this conversation, against what is in use now, as charts and lists that
// recommend the cheapest of those that keep at least a brief of everything.
import { html, memo, useState } from "../ui.js";
import { t } from "../strings.js";
import * as api from "../api.js";
import { StoreKey } from "../chat/gauge.js";
import { count, dollars } from "../format.js";
import { Chart } from "./chart.js";
import { choosePolicy, describe, isAmbiguous, keepsAll, namePolicy, readChoice, readEarlier } from "./policies.js";
import { app, useStore } from "../store.js";

const policies = ["KeepAll()", "KeepLast(10)", "TokenBudget(8_000)", "Summarize(8_000)", "Economy()", "Memory()"];
const most = { policies: 8, models: 3 }; // in one simulation

// `priced` are the models of the conversation that have cost something, latest first; `paid` is what they cost,
// and `paidText` the same for people.
// The last comparison, which stays while another view is open, until the conversation has a new turn: `made` is their number.
let kept = { key: "" };

export function Compare({ conversation, path, branch, priced, paid, paidText, made }) {
  const key = [conversation, branch, made].join();
  const [state, setState] = useState(kept.key === key ? kept : {});
  const [other, setOther] = useState(state.other || "");
  const [known, setKnown] = useState(null);
  const { models: served, providers } = useStore(app);
  const suggest = () => known || api.get("/known-models").then((found) => setKnown(found.models), () => {});
  const run = async (other) => {
    if (state.busy) return;
    setState({ ...state, busy: true, problem: "" });
    try {
      const { policy, model } = await api.get(path + "/settings", { branch });
      const chosen = readChoice(conversation);
      const own = [policy, chosen.policy, ...readEarlier(conversation)].filter((each) => each && !policies.includes(each));
      const ask = (list, models) => api.post(path + "/simulate", { policies: [...new Set(list)].slice(0, most.policies), branch, models: [...new Set(models)].filter(Boolean).slice(0, most.models) });
      // A policy with parts from outside the library can't be simulated here, nor a model that the library does not know.
      const askWithOwn = (models) => (own.length ? ask([...policies, ...own], models).catch(() => ask(policies, models)) : ask(policies, models));
      const { runs } = await askWithOwn([other, toLabel(chosen.model, served), model, ...priced]).catch(() => askWithOwn([other, ...priced]));
      kept = { key, runs, policy, model, other, isNamed: !!(other || priced.length) };
      setState(kept);
    } catch (error) {
      setState({ ...state, problem: error.message, asked: other });
    }
  };
  const isUnknown = /^The model .* is unknown\./.test(state.problem);
  const meant = (/Did you mean ['"]([^'"]+)['"]/.exec(state.problem) || [])[1];
  // What is chosen for the next message counts as in use.
  const chosen = readChoice(conversation);
  const own = { model: toLabel(chosen.model, served) || state.model, policy: chosen.policy || state.policy };
  const isChosen = own.model !== state.model || own.policy !== state.policy; // and not used yet
  const now = state.runs?.find((each) => each.model === own.model && each.policy === own.policy && !each.problem);
  // Where what is in use now is free of charge, amounts are compared with the model that was paid for before.
  const reference = now?.cost > 0 ? now : state.runs?.find((each) => each.policy === own.policy && priced.includes(each.model) && each.cost > 0) ?? now;
  const models = [...new Set((state.runs || []).map((each) => each.model))];
  return html`<section aria-label=${t("compare")}>
    <h2>${t("payLess")}</h2><p class="quiet">${t("compareHelp")}</p>
    <form class="row start" onSubmit=${(event) => { event.preventDefault(); run(other); }}><button class="primary" disabled=${!!state.busy}>${t("compare")}</button>
      <input list="priced" aria-label=${t("alsoModel")} placeholder=${t("alsoModel")} value=${other} onFocus=${suggest} onInput=${(e) => setOther(e.target.value.trim())} /> <small role="status">${state.busy ? t("comparing") : ""}</small></form>
    <${Known} served=${served} providers=${providers} known=${known} />
    <div aria-live="polite">${state.problem && html`<p class="problem" role="alert">${isUnknown ? t("unknownModel", { model: state.asked }) : state.problem} ${meant && html`<button onClick=${() => { setOther(meant); run(meant); }}>${t("compareWith", { model: meant })}</button>`}</p>`}
    ${state.runs && html`<p class="quiet">${t("estimates")} ${now && !isChosen && paid > 0 && now.cost > 0 && t("sameRules", { now: dollars(now.cost), paid: paidText, difference: t(now.cost < paid ? "less" : "more", { percent: Math.abs(Math.round(100 * (now.cost / paid - 1))) }) })}</p>`}
    ${models.map((model) => html`<${Comparison} key=${model} conversation=${conversation} own=${own.policy} now=${now} isChosen=${isChosen} reference=${reference} model=${model} isOwn=${model === own.model || !state.isNamed} runs=${state.runs.filter((each) => each.model === model)} />`)}</div></section>`;
}

// The models to choose from, with their prices. There are hundreds, so they are drawn once.
const Known = memo(function Known({ served, providers, known }) {
  const prices = new Map((known || []).map((each) => [each.label, t("prices", { input: dollars(each.input), output: dollars(each.output) })]));
  const names = new Set([...served.map((each) => each.label).filter(Boolean), ...providers.flatMap((each) => each.models), ...prices.keys()]);
  // The same model over the provider's older API is the same row.
  for (const name of names) if (name.startsWith("openai-chat:") && names.has(name.replace("-chat", ""))) names.delete(name);
  return html`<datalist id="priced">${[...names].map((name) => html`<option key=${name} value=${name}>${prices.get(name)}</option>`)}</datalist>`;
});

// The label of a model of the service, which may be chosen by its name.
const toLabel = (name, served) => served.find((each) => each.name === name)?.label || name;

// The amounts of each turn, added up from turn to turn.
function addUp(run, turns, pick) {
  const byTurn = new Map();
  for (const call of run.calls) byTurn.set(call.turn, (byTurn.get(call.turn) || 0) + pick(call));
  let all = 0;
  return turns.map((turn) => (all += byTurn.get(turn) || 0));
}

// Return the provider of a model that has no API key yet, as far as the page knows; else nothing.
function findKeyless(model, { models, providers }) {
  const found = !models.some((each) => each.label === model) && providers.find((each) => each.provider === model.split(":")[0]);
  return found && !found.is_stored && !found.variable ? found.provider : "";
}

// `isOwn` is false where a choice changes the model too, and true for the examples that stand for a model without prices.
function Comparison({ conversation, own, now, isChosen, reference, model, isOwn, runs }) {
  const listed = runs.filter((each) => each.policy !== "optimum");
  const whole = listed.filter((each) => !each.problem);
  if (!whole.length) return html`<p class="problem">${model}: ${runs[0].problem}</p>`;
  // Where all is free of charge, tokens tell policies apart.
  const priced = whole.every((each) => each.cost !== null) && whole.some((each) => each.cost > 0);
  const value = (each) => (priced ? each.cost : each.usage.input);
  const least = (list) => list.reduce((a, b) => (value(b) < value(a) ? b : a));
  const highest = Math.max(...whole.map(value)) || 1;
  const cheapest = least(whole);
  const keeping = whole.filter((each) => keepsAll(each.policy));
  const best = least(keeping.length ? keeping : whole);
  // All is compared with what is in use now; with the same policy in this model where that costs nothing; else with sending everything.
  const same = whole.find((each) => each.policy === own);
  const all = whole.find((each) => each.policy === "KeepAll()");
  const base = priced && reference?.cost > 0 ? reference : same || all || best;
  const isInUse = (run) => run === now || (isOwn && run === same);
  const than = t(isInUse(base) ? "thanNow" : base === reference ? "thanModel" : base === same ? "thanSame" : "thanAll", { name: namePolicy(base.policy), model: base.model });
  const words = priced ? { cost: t("wordCost"), costs: t("wordCosts") } : { cost: t("wordSend"), costs: t("wordSends") };
  const kind = priced ? "" : "Tokens";
  const save = (run) => (value(base) ? Math.round(100 * (1 - value(run) / value(base))) : 0);
  const say = (run) => (save(run) ? t((save(run) > 0 ? "less" : "more") + kind, { percent: Math.abs(save(run)), than }) : t("asMuch" + kind, { than }));
  // What costs more than now saves nothing, though it may lose less.
  const about = { name: namePolicy(best.policy), difference: say(best), ...words };
  const sentence = t(isInUse(best) ? "ownBest" : best === base ? "bestBefore" : save(best) > 0 ? "cheapest" : save(best) < 0 ? "keepingCosts" : "keepingSame", about);
  const isLossy = cheapest !== best && !isInUse(cheapest) && save(cheapest) > save(best) && save(cheapest) > 0;
  const turns = [...new Set(whole[0].calls.map((call) => call.turn))];
  const lines = whole.map((run) => ({ name: namePolicy(run.policy), values: addUp(run, turns, (call) => (priced ? call.cost : call.usage.input)) }));
  const label = t(priced ? "costSoFar" : "tokensSoFar");
  const names = listed.map((each) => each.policy);
  const row = (each) => html`<li key=${each.policy} class=${each === best ? "best" : ""}><span title=${each.policy}>${namePolicy(each.policy)} ${isAmbiguous(each.policy, names) ? html`<code>${each.policy}</code> ` : ""}${isOwn && each === same ? html` <small class="chip">${t(isChosen ? "chosenNext" : "yours")}</small>` : ""}${each === best && (isInUse(each) || each === base || save(each) > 0) ? html` <small class="chip">${t("recommended")}</small>` : ""}<small class="does">${describe(each.policy)}</small></span>
      ${each.problem ? html`<span class="problem">${each.problem}</span><span /><span />` : html`<svg class="bar" viewBox="0 0 100 4" preserveAspectRatio="none" aria-hidden="true"><rect width=${(100 * value(each)) / highest} height="4" /></svg>
        <span>${priced ? dollars(each.cost) + " · " : ""}${t("tokenCount", { count: count(each.usage.input) })}<small class="does">${each === base ? "" : say(each)}</small></span>
        ${isOwn && each === same ? html`<span />` : html`<button aria-label=${t(isOwn ? "usePolicyOf" : "useBothOf", { policy: namePolicy(each.policy), model })} onClick=${() => choosePolicy(conversation, each.policy, isOwn ? undefined : model)}>${t("usePolicy")}</button>`}`}</li>`;
  const provider = findKeyless(model, useStore(app));
  return html`<h3>${model}</h3>${provider && html`<p>${t("needsKey", { model, provider })} <${StoreKey} model=${model} provider=${provider} /></p>`}${!isOwn && same && base !== same ? html`<p>${t("sameWithModel", { name: namePolicy(own), model, difference: say(same) })}</p>` : ""}
    <p><strong>${sentence}</strong> ${isLossy ? t("cheaperButLossy", { name: namePolicy(cheapest.policy), difference: say(cheapest), loses: describe(cheapest.policy), ...words }) : ""}</p>
    ${whole.some((each) => each.cost === null) && html`<p class="quiet">${t("noPrices")}</p>`}
    <ul class="policies">${[...listed].sort((a, b) => (b === best) - (a === best) || value(a) - value(b)).map(row)}</ul>
    <h3>${label}</h3>
    <${Chart} lines=${lines} titles=${turns.map((_, i) => t("turnNumber", { number: i + 1 }))} label=${label} format=${priced ? dollars : (value) => (value === null ? "–" : count(value))} sums=${false} />`;
}
