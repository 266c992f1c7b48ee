// Settings: the access keys of the owner, or the API keys of providers where the service is for one user alone.
import { html, useEffect, useState } from "../ui.js";
import { t } from "../strings.js";
import * as api from "../api.js";
import { app, useStore } from "../store.js";
import { ask, notify } from "../dialogs.js";

export async function loadProviders() {
  app.set(await api.get("/provider-keys"));
}

// `provider` is the one whose key is wanted, for a `model`; `back` is the address from which the visitor came.
export function Settings({ onSession, provider, model, back }) {
  const { health } = useStore(app);
  if (!health) return null;
  return html`<div class="view"><div class="column pad">${health.is_single_user
    ? html`<h1>${t("providerKeys")}</h1>${model && html`<p class="card-note">${t("needsKey", { model, provider })} <a href=${back || "#/"}>${t("goBack")}</a></p>`}<${ProviderKeys} wanted=${provider} model=${model} back=${back} />`
    : html`<h1>${t("keys")}</h1><${AccessKeys} onSession=${onSession} />
        ${health.key && html`<button onClick=${() => api.signOut().then(onSession)}>${t("signOut")}</button>`}`}</div></div>`;
}

function AccessKeys({ onSession }) {
  const [keys, setKeys] = useState([]);
  useEffect(() => { api.get("/keys").then((found) => setKeys(found.keys)); }, []);
  const revoke = async (key) => {
    const left = await api.remove("/keys/" + key.id);
    if (key.is_current) onSession(); else setKeys(left.keys);
  };
  return html`<ul>${keys.map((key) => html`<li key=${key.id}>${key.name} ${key.is_current ? t("thisKey") : ""} <button onClick=${() => revoke(key)}>${t("revoke")}</button></li>`)}</ul>`;
}

// The keys themselves are never shown: the service stores them and does not send them back.
export function ProviderKeys({ wanted = null, model: asked = "", back = "" }) {
  const { providers } = useStore(app);
  const [provider, setProvider] = useState(wanted || "anthropic");
  const [key, setKey] = useState("");
  const [busy, setBusy] = useState(false);
  const [problem, setProblem] = useState("");
  const change = async (call, said) => {
    setBusy(true);
    try {
      const found = await call();
      app.set(found);
      setKey("");
      setProblem("");
      notify(said(found.providers));
    } catch (error) {
      setProblem(error.message);
    }
    setBusy(false);
  };
  const path = (name) => "/provider-keys/" + encodeURIComponent(name);
  const save = (event) => {
    event.preventDefault();
    if (busy || !key.trim()) return;
    change(() => api.put(path(provider), undefined, { key: key.trim() }), (all) => {
      if (provider === wanted && back) location.hash = back;
      if (asked) return t("keyStored", { provider });
      const [model] = all.find((each) => each.provider === provider)?.models || [];
      return t("keyStored", { provider }) + (model ? " " + t("nameModel", { model }) : "");
    });
  };
  const forget = async (name) => {
    const sure = await ask({ title: t("removeKeyTitle", { provider: name }), action: t("removeKey"), danger: true });
    if (sure) change(() => api.remove(path(name)), () => t("keyRemoved", { provider: name }));
  };
  const having = providers.filter((each) => each.is_stored || each.variable);
  return html`<p class="quiet">${t("providerHelp")}</p>
    <form class="add" onSubmit=${save} autocomplete="off">
      <select aria-label=${t("provider")} value=${provider} onChange=${(e) => setProvider(e.target.value)}>${providers.map((each) => html`<option value=${each.provider}>${each.provider}</option>`)}</select>
      <input class="grow" type="password" autocomplete="off" spellcheck=${false} aria-label=${t("providerKey")} placeholder=${t("providerKey")} value=${key} onInput=${(e) => setKey(e.target.value)} />
      <button class="primary" disabled=${busy || !key.trim()}>${t("store")}</button></form>
    ${problem && html`<p class="problem" role="alert">${problem}</p>`}
    <ul class="lines">${having.map((each) => html`<li key=${each.provider} class="row"><span class="grow"><b>${each.provider}</b> <small>${each.is_stored ? t("keyIsStored") : t("keyInVariable", { variable: each.variable })}</small></span>
      ${each.is_stored && html`<button disabled=${busy} aria-label=${t("removeKeyOf", { provider: each.provider })} onClick=${() => forget(each.provider)}>${t("removeKey")}</button>`}</li>`)}</ul>`;
}
