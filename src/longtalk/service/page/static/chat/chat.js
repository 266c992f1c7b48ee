// The chat: a window of messages, the answer as it comes, and the composer with its gauge.
import { html, useEffect, useMemo, useRef, useState } from "../ui.js";
import { t } from "../strings.js";
import * as api from "../api.js";
import { app, useStore } from "../store.js";
import { findVersions } from "../branches/tree.js";
import { day } from "../format.js";
import { Entry } from "./entry.js";
import { nameOf } from "../list/list.js";
import { choosePolicy, keepChoice, readChoice, toRequest } from "../money/policies.js";
import { ModelField } from "./model.js";
import { PolicyPicker } from "./policy.js";
import { Gauge, LacksKey } from "./gauge.js";
import { Live, Spoken } from "./live.js";
import { Scroller } from "./scroller.js";
import { dismiss, notify } from "../dialogs.js";
import { views } from "../views.js";
import { Talk, announce, onOthers } from "./talk.js";

const ownTools = ["recall", "update_memory"]; // of Longtalk itself, which offers them where they help

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
  const turn = sessionStorage.getItem("turn:" + talk.id) || state.live?.turn || state.branches.find((each) => each.name === state.branch)?.last_turn || null;
  return html`<aside class="panel" aria-label=${t(name)}><header><h2>${t(name)}</h2>
    <button aria-label=${t("close")} onClick=${close}>×</button></header>
    ${View && html`<${View} conversation=${talk.id} branch=${state.branch} turn=${turn} size=${state.size} lastTools=${(state.settings.tools || []).map((each) => each.name).filter((name) => !ownTools.includes(name))} tab=${tab} gauge=${state.gauge} choice=${talk.choice} onTurn=${(chosen) => talk.inspect(chosen)} onChange=${() => talk.load()} onClose=${close} onBranch=${(branch) => talk.open(branch)} />`}</aside>`;
}

// Go to the message that an address names, on its branch. Return its id when it is loaded, and whether there is none.
function useGoal(talk, { at, on, position }, { entries, branch, size }) {
  const asked = useRef(null);
  const [found, setFound] = useState(null);
  const [missing, setMissing] = useState(null);
  useEffect(() => {
    if (!at || !size || found === at) return; // it was reached: what the reader does after that counts
    const go = async () => {
      if (on && branch !== on && asked.current !== at + on) {
        asked.current = at + on;
        await talk.open(on);
      } else if (entries.some((each) => each.id === at)) setFound(at);
      else if (asked.current !== at) {
        asked.current = at;
        const place = position ?? await talk.findEntry(at);
        if (place !== null) return talk.loadAround(place);
        setMissing(at);
        notify(t("noEntry"), { isProblem: true });
      }
    };
    go().catch((problem) => talk.store.set({ problem }));
  }, [at, on, entries, branch, found]);
  return { goal: at && found === at ? at : null, isAwaited: !!at && at !== found && at !== missing };
}

// The panel that is open. On a wide screen it stays while a message is shown that it leads to.
function usePanel(view) {
  const open = useRef("");
  const stays = view === "at" && matchMedia("(min-width: 64rem)").matches;
  if (!stays) open.current = views[view] ? view : "";
  return open.current;
}

// Whether an answer was stopped, or has reached the limit of its size.
const isCut = ({ role, status, finish_reason: reason }) => role === "assistant" && (["interrupted", "failed"].includes(status) || reason === "length");
const turnOf = (entry) => entry.slice(0, entry.lastIndexOf("-"));

// A visitor who can store the key of a provider is led to where, below; others learn what the operator can do.
const sayProblem = (problem, health) => (problem.code === "provider_key_missing" && health?.is_single_user ? t("lacksKey") : problem.message);

function Conversation({ talk, view, tab, at, on, position }) {
  const state = useStore(talk.store);
  const { health, conversations } = useStore(app);
  const panel = usePanel(view);
  const { entries, live, problem, branches, branch, size, pinned, excluded, costs, compactions } = state;
  const { goal, isAwaited } = useGoal(talk, { at, on, position }, state);
  const out = useMemo(() => new Set(excluded.map(turnOf)), [excluded]); // exchanges are left out whole
  const versions = useMemo(() => findVersions(branches, branch), [branches, branch]);
  const cutOff = ["interrupted", "failed"].includes(branches.find((each) => each.name === branch)?.status);
  const shown = live?.turn ? entries.filter((each) => each.turn !== live.turn || each.role === "user") : entries;
  const last = branches.find((each) => each.name === branch)?.last_turn;
  const waits = live?.message && !entries.some((each) => each.turn === live.turn);
  return html`
    ${entries.length > 0 && html`<h1 class="sr">${nameOf(conversations.find((each) => each.id === talk.id) || state.info)}</h1>`}
    <${Scroller} talk=${talk} talkState=${state} goal=${goal} isAwaited=${isAwaited}
      before=${!entries.length && !live && state.info && html`<h1 class="hello">${t("empty")}</h1><${MemoryTip} talk=${talk} settings=${state.settings} gauge=${state.gauge} />`}
      after=${html`
        ${waits && html`<article class="entry user" aria-label=${t("you")}><div class="plain">${live.message}</div></article>`}
        ${live && html`<${Live} talk=${talk} />`}
        ${state.lost && html`<p class="quiet" role="status">${t("lost")}</p>`}
        ${problem && html`<p class="problem" role="alert">${sayProblem(problem, health)}
          ${problem.returned ? ` ${t("messageBack")}` : problem.order && html` <button onClick=${() => talk.retry()}>${t("retry")}</button>`}</p>`}
        ${!problem && !live && cutOff && html`<p class="quiet">${t("cutOff")} <button onClick=${() => talk.retry()}>${t("goOn")}</button></p>`}`}>
      ${shown.map((entry, i) => html`<${Entry} key=${entry.id} entry=${entry} beginsDay=${!i || day(entry.at) !== day(shown[i - 1].at)} talk=${talk} branch=${branch} versions=${versions.get(entry.position)} compaction=${compactions.get(entry.position)}
        pinned=${pinned.includes(entry.id)} excluded=${excluded.includes(entry.id)} out=${out.has(turnOf(entry.id))} cost=${entry.role === "assistant" && !entry.calls.length ? costs[entry.turn] : undefined}
        found=${entry.id === at} inspected=${panel === "inspector" && entry.turn === (state.inspected || last)} busy=${!!live} isCut=${isCut(entry) && !(cutOff && !problem && entry === shown.at(-1))} place=${entry.position + 1} count=${size} />`)}
    <//>
    <${Spoken} talk=${talk} />
    <${Composer} talk=${talk} state=${state} />
    ${panel && html`<${Panel} key=${panel} name=${panel} talk=${talk} state=${state} tab=${tab} />`}`;
}

// What is worth knowing before the first message: that a chat which sends everything is not made for months.
function MemoryTip({ talk, settings, gauge }) {
  useStore(app); // the choice may be made in another view
  const policy = readChoice(talk.id).policy || settings.policy || gauge?.policy;
  return policy === "KeepAll()" ? html`<p class="quiet tip">${t("memoryTip")} <button onClick=${() => { choosePolicy(talk.id, "Memory()"); document.getElementById("message").focus(); }}>${t("useMemory")}</button></p>` : "";
}

function Composer({ talk, state }) {
  const [text, setText] = useState(localStorage.getItem("draft:" + talk.id) || "");
  const [images, setImages] = useState([]);
  const [model, setModel] = useState(readChoice(talk.id).model); // both may have been chosen in another view
  const [policy, setPolicy] = useState(readChoice(talk.id).policy);
  const [refusal, setRefusal] = useState("");
  const { models, health, chosen } = useStore(app);
  const { live, gauge, problem, settings, branch, branches } = state;
  const choice = toRequest({ model, policy });
  talk.choice = choice;
  const ownPolicy = models.find((each) => each.label === gauge?.model)?.policy || (!policy && gauge?.policy);
  const message = images.length ? [...(text ? [{ type: "text", text }] : []), ...images.map((url) => ({ type: "image_url", image_url: { url } }))] : text;
  useEffect(() => {
    localStorage.setItem("draft:" + talk.id, text);
    const later = setTimeout(() => { if (!live && state.info) talk.estimate({ message: message.length ? message : "…", ...choice }).then(() => setRefusal(""), (found) => setRefusal(model || policy ? found.message : "")); }, 700);
    return () => clearTimeout(later);
  }, [text, images, model, policy, live, state.info]);
  useEffect(() => { if (chosen?.conversation === talk.id) { setModel(chosen.model); setPolicy(chosen.policy); app.set({ chosen: null }); } }, [chosen]); // once: a later choice by hand counts
  useEffect(() => keepChoice(talk.id, { model, policy }), [model, policy]);
  const isEmpty = state.info && !state.size;
  useEffect(() => { // a new conversation is for typing, unless the visitor is in a field already
    if (isEmpty && !document.activeElement?.closest("input,select")) document.getElementById("message").focus();
  }, [isEmpty]);
  // A message that was refused before it was stored is not lost.
  useEffect(() => {
    const body = problem?.order?.body;
    if (!body || problem.started || problem.returned || body.edits || !body.message || message.length) return;
    const parts = typeof body.message === "string" ? [{ text: body.message }] : body.message;
    setText(parts.find((each) => each.text)?.text || "");
    setImages(parts.map((each) => each.image_url?.url).filter(Boolean));
    talk.store.set({ problem: { ...problem, returned: true } });
  }, [problem]);
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
    talk.store.set(({ notes }) => ({ notes: notes + 1 }));
    announce(talk.id);
  };
  // What the service can't say of a policy now, it says when the message is sent.
  const checkPolicy = (code) => api.post(talk.path + "/estimate", { branch, message: "…", ...(code && { policy: code }) }).catch((found) => { if (found.status === 400) throw found; });
  const onKey = (event) => { if (event.key === "Enter" && !event.shiftKey && !event.isComposing) send(event); };
  return html`<form class="composer" onSubmit=${send} onPaste=${(e) => take(e.clipboardData.files)}
      onDragOver=${(e) => e.preventDefault()} onDrop=${(e) => { if (e.dataTransfer.files[0]?.type.startsWith("image/")) { e.preventDefault(); e.stopPropagation(); take(e.dataTransfer.files); } }}>
    <div class="column">
      <div class="field">
        ${images.map((url, i) => html`<span class="thumb"><img src=${url} alt="" /><button type="button" aria-label=${t("removeImage")} onClick=${() => setImages(images.filter((_, j) => j !== i))}>×</button></span>`)}
        <textarea id="message" rows="2" aria-label=${t("message")} placeholder=${t("message")} value=${text} onInput=${(e) => setText(e.target.value)} onKeyDown=${onKey} />
        <div class="tools">
          <label class="button" title=${t("attach")}>+<input class="sr" type="file" accept="image/*" multiple aria-label=${t("attach")} onChange=${(e) => take(e.target.files)} /></label>
          <${ModelField} chosen=${model} usual=${gauge?.model || settings.model || health?.default_model || t("model")} onChoose=${setModel} />
          <${PolicyPicker} conversation=${talk.id} current=${settings.policy || ownPolicy} chosen=${policy} check=${checkPolicy} onChoose=${(each) => { dismiss(); setPolicy(each); }} />
          <span class="row ends"><button type="button" title=${t("noteHelp")} disabled=${!text || !!live} onClick=${note}>${t("note")}</button>
          ${live ? html`<button type="button" class="primary" onClick=${() => talk.stop()}>${t("stop")}</button>`
            : html`<button class="primary" disabled=${!message.length}>${t("send")}</button>`}</span>
        </div>
      </div>
      <div class="gauge"><${Gauge} id=${talk.id} gauge=${gauge} onOpen=${() => talk.inspect("next")} /></div>
      ${gauge?.lacks_key && html`<${LacksKey} model=${gauge.model} provider=${gauge.lacks_key} />`}
      ${(model || policy) && refusal && html`<p class="problem other">${refusal}</p>`}
      ${!model && gauge && settings.model && gauge.model !== settings.model && html`<p class="quiet other">${t("otherModel", { before: settings.model, model: gauge.model })}</p>`}
    </div>
  </form>`;
}
