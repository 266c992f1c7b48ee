// The shell: routing by hash, the list, the chat, settings, and signing in.
import { html, render, useEffect, useState } from "./ui.js";
import { t } from "./strings.js";
import * as api from "./api.js";
import { app, useStore } from "./store.js";
import { Dialogs, Notices, report } from "./dialogs.js";
import { List, begin, importFile, loadList, nameOf, openSample } from "./list/list.js";
import { Palette, handleKey, openPalette } from "./palette/palette.js";
import { paletteKey } from "./palette/commands.js";
import { restoreTheme, switchTheme } from "./theme.js";
import { Chat } from "./chat/chat.js";
import { NextRequest } from "./chat/gauge.js";
import { Page } from "./views.js";
import { ProviderKeys, Settings, loadProviders } from "./settings/settings.js";

async function start() {
  try {
    const health = await api.get("/health");
    app.set({ health, signedOut: false, problem: "" });
    app.set({ models: (await api.get("/models")).models });
    await loadList();
    if (health.is_single_user) await loadProviders();
  } catch (problem) {
    app.set(problem.status === 401 ? { signedOut: true } : { problem: problem.message });
  }
}

// What the service refuses is shown, whatever asked for it. Requests may also be under way when the visitor signs out, or
// when the key expires.
addEventListener("unhandledrejection", (event) => {
  if (!(event.reason instanceof api.ApiError)) return;
  event.preventDefault();
  if (event.reason.status === 401) app.set({ signedOut: true });
  else report(event.reason);
});

function readRoute() {
  const [kind, id, view, entry, on, position] = location.hash.split("/").slice(1).map(decodeURIComponent);
  return { kind: kind || "", id: id || null, view: view || "", entry: entry || null, on: on || null, position: position ? Number(position) : null };
}

function Conversation({ id, view, entry, on, position }) {
  const branch = localStorage.getItem("branch:" + id) || "main";
  const tabs = [["chatView", ""], ["inspectorTab", "inspector"], ["memoryView", "memory"], ["moneyView", "money"], ["branches", "branches"]];
  const shown = tabs.some(([, name]) => name === view) ? view : "";
  return html`<div class="views" role="navigation" aria-label=${t("views")}>${tabs.map(([label, name]) => html`<a
      href=${"#/c/" + encodeURIComponent(id) + (name && "/" + name)} aria-current=${name === shown ? "page" : null}>${t(label)}</a>`)}</div>
    ${shown === "memory" || shown === "money" ? html`<${Page} key=${shown} name=${shown} conversation=${id} branch=${branch} adds=${entry === "add" ? on || "" : null} /><${NextRequest} conversation=${id} branch=${branch} />`
      : html`<${Chat} id=${id} view=${view} tab=${view === "inspector" ? entry : null} at=${view === "inspector" ? null : entry} on=${on} position=${position} key=${id} />`}`;
}

function SignIn() {
  const [key, setKey] = useState("");
  const [problem, setProblem] = useState("");
  const submit = async (event) => {
    event.preventDefault();
    await api.signIn(key).then(start, (error) => setProblem(error.message));
  };
  return html`<main class="center"><form class="card" onSubmit=${submit}><h1>Longtalk</h1>
    <input type="password" aria-label=${t("accessKey")} placeholder=${t("accessKey")} value=${key} onInput=${(e) => setKey(e.target.value)} autocomplete="current-password" />
    <button class="primary">${t("signIn")}</button>
    ${problem && html`<p class="problem" role="alert">${problem}</p>`}<p class="quiet">${t("signInHelp")}</p></form></main>`;
}

function Shell() {
  const { signedOut, problem, health, conversations } = useStore(app);
  const [route, setRoute] = useState(readRoute());
  const [open, setOpen] = useState(false);
  useEffect(() => {
    const go = () => setRoute(readRoute());
    const key = (event) => {
      if (event.key === "Escape") setOpen(false);
      else handleKey(event, readRoute());
    };
    const drop = (event) => {
      event.preventDefault();
      const file = event.dataTransfer?.files[0];
      if (event.type === "drop" && file) importFile(file);
    };
    addEventListener("hashchange", go);
    // The address may have changed since it was read for the first time.
    go();
    addEventListener("keydown", key);
    addEventListener("dragover", drop);
    addEventListener("drop", drop);
    start();
    return () => removeEventListener("hashchange", go);
  }, []);
  const current = route.kind === "c" && conversations.find((each) => each.id === route.id);
  useEffect(() => { document.title = current ? `${nameOf(current)} · Longtalk` : "Longtalk"; }, [current]);
  if (signedOut) return html`<${SignIn} />`;
  return html`<div class=${"shell" + (open ? " open" : "")}>
    <nav aria-label=${t("menu")}>
      <${List} current=${route.id} onClose=${() => setOpen(false)} />
      <div class="foot">
        <button aria-keyshortcuts="Control+K" onClick=${() => { setOpen(false); openPalette(); }}>${t("palette")} <kbd>${paletteKey}</kbd></button>
        <label class="button" title=${t("importHelp")}>${t("import")}<input class="sr" type="file" aria-label=${t("import")} onChange=${(e) => { importFile(e.target.files[0]); e.target.value = ""; }} /></label>
        <button onClick=${switchTheme}>${t("theme")}</button>
        <a class="button" href="#/money" onClick=${() => setOpen(false)}>${t("costsOfAll")}</a>
        ${(health?.key || health?.is_single_user) && html`<a class="button" href="#/settings" onClick=${() => setOpen(false)}>${t(health.key ? "keys" : "providerKeys")}</a>`}
      </div>
    </nav>
    <main>
      <button class="burger" aria-label=${t("menu")} aria-expanded=${open} onClick=${() => setOpen(!open)}>${open ? "×" : "☰"}</button>
      ${problem && html`<p class="problem" role="alert">${problem} <button onClick=${start}>${t("retry")}</button></p>`}
      ${route.kind === "c" ? html`<${Conversation} ...${route} />`
        : route.kind === "money" ? html`<${Page} key="money" name="money" conversation=${null} />`
        : route.kind === "settings" ? html`<${Settings} key=${location.hash} onSession=${start} provider=${route.id} model=${route.view} back=${route.entry} />`
        : route.kind === "licences" ? html`<${Page} key="licences" name="licences" />`
        : html`<div class="center"><h1 class="hello">${t("empty")}</h1><p class="quiet">${t("whatItIs")}${health ? " " + t(health.default_model === "local" ? "answersLocal" : "answersFrom", { model: health.default_model }) : ""}</p><button class="primary" onClick=${() => begin().catch(report)}>${t("newChat")}</button>
          <p class="quiet">${t("sampleHelp")}</p><button onClick=${() => openSample().catch(report)}>${t("openSample")}</button>
          ${health?.is_single_user && html`<details class="fold own-key"><summary>${t("useProvider")}</summary><${ProviderKeys} /></details>`}
          <p class="quiet"><a href="#/licences">${t("licences")}</a></p></div>`}
      <${Notices} /></main></div><${Palette} route=${route} /><${Dialogs} />`;
}

restoreTheme();
render(html`<${Shell} />`, document.getElementById("app"));
