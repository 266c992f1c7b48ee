// The gauge: how large the next request is, of how much, and about what it costs. It leads to that request.
import { html, useEffect, useState } from "../ui.js";
import { t } from "../strings.js";
import * as api from "../api.js";
import { app, useStore } from "../store.js";
import { count, countHistory, dollars } from "../format.js";
import { readChoice, toRequest } from "../money/policies.js";
import { onOthers } from "./talk.js";

export function Gauge({ id, gauge, onOpen = () => sessionStorage.setItem("turn:" + id, "next") }) {
  // Where the policy counts the history alone, its limit does not move with what else a request has.
  const ofHistory = gauge?.history_limit ?? null;
  const room = ofHistory ?? gauge?.limit ?? gauge?.window;
  const filled = gauge && (ofHistory === null ? gauge.tokens : countHistory(gauge.tokens, gauge));
  const used = room ? Math.min(100, (100 * filled) / room) : 0;
  const kind = ofHistory !== null ? "ofHistory" : gauge?.limit === null ? "ofWindow" : "ofPolicy";
  const label = gauge && t("gauge", { tokens: count(gauge.tokens), window: room ? t(kind, { history: count(filled), window: count(room) }) : "" })
    + t(gauge.cost === null ? "nextCostUnknown" : gauge.cost === 0 ? "nextFree" : "nextCost", { cost: dollars(gauge.cost), model: gauge.model });
  return html`<a href=${`#/c/${encodeURIComponent(id)}/inspector`} onClick=${onOpen} title=${label || t("seeNext")}>
    <progress max="100" value=${used} aria-hidden="true" /><span>${label || t("seeNext")}</span></a>`;
}

// The gauge of views without a composer.
export function NextRequest({ conversation, branch }) {
  const [gauge, setGauge] = useState(null);
  useEffect(() => {
    let current = true;
    const load = () => api.post(api.one(conversation) + "/estimate", { branch, message: localStorage.getItem("draft:" + conversation) || "…", ...toRequest(readChoice(conversation)) })
      .then((found) => current && setGauge(found), () => {});
    load();
    const leave = onOthers((other) => other === conversation && load());
    return () => { current = false; leave(); };
  }, [conversation, branch]);
  return html`<div class="foot-gauge"><div class="column gauge"><${Gauge} id=${conversation} gauge=${gauge} /></div></div>`;
}

// The way to where the key for a model is stored, and back to here.
export const StoreKey = ({ model, provider }) => html`<a href=${"#/settings/" + [provider, model, location.hash].map(encodeURIComponent).join("/")}>${t("storeKey")}</a>`;

// That a model can't answer yet, with the way to where its key is stored.
export function LacksKey({ model, provider }) {
  const { health } = useStore(app);
  return html`<p class="card-note">${t("needsKey", { model, provider })} ${health?.is_single_user && html`<${StoreKey} model=${model} provider=${provider} />`}</p>`;
}
