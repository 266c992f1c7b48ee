// The chat: a window of messages, the answer as it comes, and the composer with its gauge.
import { html, memo, useEffect, useMemo, useRef, useState } from "../ui.js";
import { t } from "../strings.js";
import * as api from "../api.js";
import { app, useStore } from "../store.js";
import { findVersions } from "../branches/tree.js";
import { Entry } from "./entry.js";
import { Gauge } from "./gauge.js";
import { Live, Spoken } from "./live.js";
import { Scroller } from "./scroller.js";
import { notify } from "../dialogs.js";
import { views } from "../views.js";
import { Talk, announce, onOthers } from "./talk.js";

const policies = ["KeepAll()", "Memory()", "Summarize()"];

export function Chat({ id, view, tab, at, on, position }) {
  const [talk, setTalk] = useState(null);
  useEffect(() => {
    const made = new Talk(id);
    const fail = (problem) => {
      if (problem.status !== 404 || !made.store.get().info) return made.store.set({ problem });
      notify(t("deletedElsewhere"));
      location.hash = "#/";
    };
    const load = () => made.store.get().live || made.load().catch(fail);
    load();
    const leave = onOthers((other, here) => other === id && !here && load());
    const wake = () => document.visibilityState === "visible" && load();
    document.addEventListener("visibilitychange", wake);
    setTalk(made);
    return () => { leave(); document.removeEventListener("visibilitychange", wake); made.close(); };
  }, [id]);
  return talk && talk.id === id ? html`<${Conversation} talk=${talk} view=${view} tab=${tab} at=${at} on=${on} position=${position} key=${id} />` : null;
}

function Panel({ name, talk, state, tab }) {
  const [View, setView] = useState(null);
  const close = () => { location.hash = "#/c/" + encodeURIComponent(talk.id); };
  useEffect(() => { views[name]().then((found) => setView(() => found)); }, [name]);
  useEffect(() => {
    const key = (event) => event.key === "Escape" && close();
    addEventListener("keydown", key);
    return () => removeEventListener("keydown", key);
  }, []);
  const answered = state.entries.filter((each) => each.role === "assistant");
  const turn = sessionStorage.getItem("turn:" + talk.id) || answered[answered.length - 1]?.turn || null;
  return html`<aside class="panel" aria-label=${t(name)}><header><h2>${t(name)}</h2>
    <nav class="tabs">${Object.keys(views).filter((each) => each !== name).map((each) => html`<a class="button" href=${`#/c/${encodeURIComponent(talk.id)}/${each}`}>${t(each)}</a>`)}</nav>
    <button aria-label=${t("close")} onClick=${close}>×</button></header>
    ${View && html`<${View} conversation=${talk.id} branch=${state.branch} turn=${turn} tab=${tab} onClose=${close} onBranch=${(branch) => talk.open(branch)} />`}</aside>`;
}

// Go to the message that an address names, on its branch.
function useGoal(talk, { at, on, position }, { entries, branch, size }) {
  const asked = useRef(null);
  const [found, setFound] = useState(null);
  useEffect(() => {
    if (!at || !size) return;
    const go = async () => {
      if (on && branch !== on && asked.current !== at + on) {
        asked.current = at + on;
        await talk.open(on);
      } else if (entries.some((each) => each.id === at)) setFound(at);
      else if (asked.current !== at) {
        asked.current = at;
        const place = position ?? await talk.findEntry(at);
        if (place !== null) await talk.loadAround(place);
      }
    };
    go().catch((problem) => talk.store.set({ problem }));
  }, [at, on, entries, branch]);
  return at && found === at ? at : null;
}

function Conversation({ talk, view, tab, at, on, position }) {
  const state = useStore(talk.store);
  const { entries, live, problem, branches, branch, size, pinned, excluded, costs, compactions } = state;
  const found = useGoal(talk, { at, on, position }, state);
  const versions = useMemo(() => findVersions(branches, branch), [branches, branch]);
  const cutOff = ["interrupted", "failed"].includes(branches.find((each) => each.name === branch)?.status);
  const shown = live?.turn ? entries.filter((each) => each.turn !== live.turn || each.role === "user") : entries;
  const waits = live?.message && !entries.some((each) => each.turn === live.turn);
  return html`
    <${Scroller} talk=${talk} talkState=${state} goal=${found} isLed=${!!at}
      before=${!entries.length && !live && state.info && html`<h1 class="hello">${t("empty")}</h1>`}
      after=${html`
        ${waits && html`<article class="entry user" aria-label=${t("you")}><div class="plain">${live.message}</div></article>`}
        ${live && html`<${Live} talk=${talk} />`}
        ${state.lost && html`<p class="quiet" role="status">${t("lost")}</p>`}
        ${problem && html`<p class="problem" role="alert">${problem.message}
          ${problem.order && html` <button onClick=${() => talk.retry()}>${t("retry")}</button>`}</p>`}
        ${!problem && !live && cutOff && html`<p class="quiet">${t("cutOff")} <button onClick=${() => talk.retry()}>${t("goOn")}</button></p>`}`}>
      ${shown.map((entry) => html`<${Entry} key=${entry.id} entry=${entry} talk=${talk} branch=${branch} versions=${versions.get(entry.position)} compaction=${compactions.get(entry.position)}
        pinned=${pinned.includes(entry.id)} excluded=${excluded.includes(entry.id)} cost=${entry.role === "assistant" && !entry.calls.length ? costs[entry.turn] : undefined}
        found=${entry.id === at} busy=${!!live} place=${entry.position + 1} count=${size} />`)}
    <//>
    <${Spoken} talk=${talk} />
    <${Composer} talk=${talk} state=${state} />
    ${views[view] && html`<${Panel} key=${view} name=${view} talk=${talk} state=${state} tab=${tab} />`}`;
}

// A provider may have hundreds of models, so they are drawn once.
const ModelNames = memo(function ModelNames({ models, providers }) {
  const more = providers.flatMap((each) => each.models);
  return html`<datalist id="models">${models.map((each) => html`<option value=${each.name}>${each.label}</option>`)}${more.map((name) => html`<option value=${name} />`)}</datalist>`;
});

function Composer({ talk, state }) {
  const [text, setText] = useState(localStorage.getItem("draft:" + talk.id) || "");
  const [images, setImages] = useState([]);
  const [model, setModel] = useState("");
  const [policy, setPolicy] = useState(sessionStorage.getItem("policy:" + talk.id) || ""); // one that was chosen in the costs
  const { models, providers } = useStore(app);
  const { live, gauge, settings, branch, branches } = state;
  const here = `#/c/${encodeURIComponent(talk.id)}/`;
  const choice = { ...(model && { model }), ...(policy && { policy }) };
  talk.choice = choice;
  const message = images.length ? [...(text ? [{ type: "text", text }] : []), ...images.map((url) => ({ type: "image_url", image_url: { url } }))] : text;
  useEffect(() => {
    localStorage.setItem("draft:" + talk.id, text);
    const later = setTimeout(() => { if (!live && state.info) talk.estimate({ message: message.length ? message : "…", ...choice }).catch(() => {}); }, 700);
    return () => clearTimeout(later);
  }, [text, images, model, policy, live, state.info]);
  const take = (files) => [...files].filter((file) => /^image\/(png|jpeg|gif|webp)$/.test(file.type)).forEach((file) => {
    const reader = new FileReader();
    reader.onload = () => setImages((now) => [...now, reader.result]);
    reader.readAsDataURL(file);
  });
  const clear = () => { setText(""); setImages([]); };
  const send = (event) => {
    event?.preventDefault();
    if (live || !message.length) return;
    clear();
    talk.send({ message, ...choice }, text);
  };
  const note = async () => {
    await api.post(talk.path + "/notes", { text, source: "page", branch });
    clear();
    await talk.load();
    announce(talk.id);
  };
  const onKey = (event) => { if (event.key === "Enter" && !event.shiftKey && !event.isComposing) send(event); };
  return html`<form class="composer" onSubmit=${send} onPaste=${(e) => take(e.clipboardData.files)}
      onDragOver=${(e) => e.preventDefault()} onDrop=${(e) => { if (e.dataTransfer.files[0]?.type.startsWith("image/")) { e.preventDefault(); e.stopPropagation(); take(e.dataTransfer.files); } }}>
    <div class="column">
      <div class="field">
        ${images.map((url, i) => html`<span class="thumb"><img src=${url} alt="" /><button type="button" aria-label=${t("removeImage")} onClick=${() => setImages(images.filter((_, j) => j !== i))}>×</button></span>`)}
        <textarea id="message" rows="2" aria-label=${t("message")} placeholder=${t("message")} value=${text} onInput=${(e) => setText(e.target.value)} onKeyDown=${onKey} />
        <div class="tools">
          <label class="button" title=${t("attach")}>+<input class="sr" type="file" accept="image/*" multiple aria-label=${t("attach")} onChange=${(e) => take(e.target.files)} /></label>
          <input list="models" aria-label=${t("model")} placeholder=${settings.model || t("model")} value=${model} onInput=${(e) => setModel(e.target.value)} />
          <${ModelNames} models=${models} providers=${providers} />
          <input list="policies" aria-label=${t("policy")} placeholder=${settings.policy || t("policy")} value=${policy} onInput=${(e) => setPolicy(e.target.value)} />
          <datalist id="policies">${policies.map((each) => html`<option value=${each} />`)}</datalist>
          <span class="grow" />
          <button type="button" disabled=${!text || !!live} onClick=${note}>${t("note")}</button>
          ${live ? html`<button type="button" class="primary" onClick=${() => talk.stop()}>${t("stop")}</button>`
            : html`<button class="primary" disabled=${!message.length}>${t("send")}</button>`}
        </div>
      </div>
      <div class="gauge">
        <${Gauge} id=${talk.id} gauge=${gauge} />
        <span class="grow" />
        <a href=${here + "branches"}>${t("branches")}${branches.length > 1 ? ` (${branches.length})` : ""}</a>
      </div>
    </div>
  </form>`;
}
