// Memory: the brief as lines that can be edited, its history, marked messages, and topics as a timeline.
import { html, useEffect, useRef, useState } from "../ui.js";
import { t } from "../strings.js";
import * as api from "../api.js";
import { notify, report } from "../dialogs.js";
import { count, cut, day, days, dollars, nameField, plain, time } from "../format.js";
import { goTo } from "../inspector/compaction.js";
import { readPlaces } from "../inspector/runs.js";
import { linkTo } from "../list/list.js";
import { namePolicy, readChoice, toRequest } from "../money/policies.js";
import { announce, onOthers } from "../chat/talk.js";
import { Add, Line, UsePolicy, dropDraft, readDraft, sayWhen } from "./lines.js";
import { OldMessages } from "./old.js";
import { Profile } from "./profile.js";

// Return for lines that were edited what they were at first and all that they were before, latest first; and for all lines
// their place in the order in which they came.
function findOrigins(changes) {
  const [origins, earlier, places] = [new Map(), new Map(), new Map()];
  for (const { added, removed } of changes) {
    for (const line of added) {
      const old = !line.entry && added.length === 1 && removed.length === 1 && removed[0].field === line.field && removed[0];
      if (old) origins.set(line.id, origins.get(old.id) ?? old);
      if (old) earlier.set(line.id, [old, ...(earlier.get(old.id) ?? [])]);
      if (!places.has(line.id)) places.set(line.id, places.get(old.id) ?? places.size);
    }
  }
  return { origins, earlier, places };
}

const sendsBrief = (policy) => !policy || policy.includes("Memory(");

// `adds` is the text that a new line begins with, or null if none is to be added.
export function Memory({ conversation, branch = "main", adds = null }) {
  const path = api.one(conversation);
  const [found, setFound] = useState(null);
  const [problem, setProblem] = useState("");
  const load = async () => {
    const read = (part, query) => api.get(`${path}/${part}`, { branch, ...query });
    const [brief, { changes }, marks, { topics }, { sources }, { branches }] = await Promise.all([
      ...["brief", "brief/changes", "marks", "topics", "brief/sources"].map((part) => read(part)), api.get(path + "/branches")]);
    const policy = sessionStorage.getItem("policy:" + conversation) || (await read("settings")).policy;
    const { entries } = marks.pinned.length + marks.excluded.length ? await read("history", { limit: 1000 }) : { entries: [] };
    const said = await readPlaces(path, branch, sources.filter((each) => each.states).map((each) => each.position));
    setFound({ brief, policy, changes, marks, topics, entries, sources: new Map(sources.map((each) => [each.line, { ...each, at: each.states ? said.get(each.position)?.at : null }])), isOneOfMany: branches.length > 1 });
  };
  const retry = () => load().then(() => setProblem(""), (error) => setProblem(error.message));
  useEffect(() => {
    setFound(null);
    retry();
    return onOthers((other) => other === conversation && retry());
  }, [conversation, branch]);
  // Return whether the change was made, so that a form keeps its text if it was not.
  const change = async (call) => {
    try {
      await call();
      setProblem("");
      await load();
      announce(conversation);
      notify(t(sendsBrief(found?.policy) ? "briefSaved" : "saved"));
      return true;
    } catch (error) {
      setProblem(error.message);
      return false;
    }
  };
  const talk = { conversation, branch, path, change, adds, sources: found?.sources, isOneOfMany: found?.isOneOfMany };
  return html`<div class="view"><div class="column pad">
    <h1>${t("memoryTitle")}</h1>
    ${problem && html`<p class="problem" role="alert">${problem} <button onClick=${retry}>${t("retry")}</button></p>`}
    ${!found ? !problem && html`<p class="quiet" role="status">${t("loading")}</p>` : html`
      <${Brief} talk=${talk} brief=${found.brief} policy=${found.policy} changes=${found.changes} excluded=${found.marks.excluded} />
      <${Profile} conversation=${conversation} policy=${found.policy} />
      <${Marked} talk=${talk} kind="pins" title=${t("pinnedTitle")} help=${t("pinnedHelp")} undo=${t("unpin")} ids=${found.marks.pinned} entries=${found.entries} />
      <${Marked} talk=${talk} kind="exclusions" title=${t("leftOutTitle")} help=${t("leftOutHelp")} undo=${t("include")} ids=${found.marks.excluded} entries=${found.entries} />
      <${Topics} talk=${talk} topics=${found.topics} />
      <${Changes} changes=${found.changes} />`}
  </div></div>`;
}

function Brief({ talk, brief, policy, changes, excluded }) {
  const [corrected, setCorrected] = useState(null);
  const [forgotten, setForgotten] = useState("");
  const [begun, setBegun] = useState(null);
  const [, setDropped] = useState(0);
  const gone = useRef(null);
  useEffect(() => { if (forgotten) gone.current.scrollIntoView({ block: "nearest" }); }, [forgotten]);
  if (!brief.kept) return html`<p class="card-note">${t("noBrief")} <${UsePolicy} conversation=${talk.conversation} policy="Memory()" /></p>`;
  const fields = brief.fields.map(({ name }) => name);
  const others = brief.lines.map((line) => line.field).filter((name) => !fields.includes(name));
  const { origins, earlier, places } = findOrigins(changes);
  const inOrder = (one, other) => (places.get(one.id) ?? 0) - (places.get(other.id) ?? 0);
  const groups = [...fields, ...new Set(others)].map((name) => [name, brief.lines.filter((line) => line.field === name).sort(inOrder)]);
  const isThere = (gone) => brief.lines.some((line) => line.field === gone.field && line.text === gone.text);
  const removed = brief.removed.filter((line) => !isThere(line)).reverse();
  // What was typed into a line that is gone meanwhile.
  const known = new Set(brief.lines.flatMap((line) => [line, ...(earlier.get(line.id) ?? [])]).map((line) => line.id));
  const orphans = changes.flatMap((each) => each.removed).map((line) => ({ ...line, draft: !known.has(line.id) && readDraft(talk.path + "/brief", line) })).filter(({ draft, text }) => draft && draft !== text);
  const drop = (line) => { dropDraft(talk.path + "/brief", line); setDropped((many) => many + 1); };
  const isSent = sendsBrief(policy);
  const next = `#/c/${encodeURIComponent(talk.conversation)}/inspector/request`;
  // What a corrected line said before, which messages may still say.
  const belowOf = (line) => {
    const isNew = corrected?.after === line.text;
    const before = isNew ? corrected.before : origins.get(line.id)?.text;
    return before && html`<${OldMessages} talk=${talk} line=${line.id} before=${before} excluded=${excluded} opened=${isNew} />`;
  };
  return html`${talk.isOneOfMany && html`<p class="quiet">${t("memoryOfVersion")}</p>`}
    ${isSent ? html`<p class="quiet">${t("memoryHelp")} <a href=${next} onClick=${() => sessionStorage.setItem("turn:" + talk.conversation, "next")}>${t("seeNext")}</a></p>`
      : html`<p class="card-note"><span title=${policy}>${t("notSentBy", { policy: namePolicy(policy) })}</span> <${UsePolicy} conversation=${talk.conversation} policy="Memory()" /></p>`}
    ${!brief.lines.length && html`<p class="card-note">${t(brief.is_noted ? "emptyBrief" : "emptyBriefNotNoted")}</p>`}
    ${orphans.map((line) => html`<p key=${line.id} class="card-note" role="alert">${t("lineGone", { text: cut(line.text, 90), draft: line.draft })}
      <button onClick=${() => { setBegun(line.draft); drop(line); }}>${t("useAsNew")}</button> <button onClick=${() => drop(line)}>${t("dropIt")}</button></p>`)}
    ${groups.filter(([, lines]) => lines.length).map(([name, lines]) => html`<section key=${name} aria-label=${nameField(name)}>
      <h2 class="field-name">${nameField(name)}</h2>
      <ul class="lines">${lines.map((line) => html`<${Line} key=${line.id} line=${line} earlier=${earlier.get(line.id)} change=${talk.change} path=${talk.path + "/brief"} query=${{ branch: talk.branch, everywhere: true }}
        said=${line.entry ? findSource(talk, line)?.at : null} onEdit=${(before, after) => setCorrected({ before, after })} sure=${t("revokeSureHere")} sayEffect=${async () => (isSent ? sayEffect(talk) : "")} onForget=${setForgotten}
        source=${html`<${Source} talk=${talk} line=${line} origin=${origins.get(line.id)} />`}
        below=${belowOf(line)} />`)}</ul></section>`)}
    <${Add} fields=${brief.fields} first="facts" change=${talk.change} path=${talk.path + "/brief"} more=${{ branch: talk.branch }} fieldLabel=${t("lineField")} label=${t("lineText")} action=${t("addLine")} begun=${begun ?? talk.adds} />
    ${removed.length > 0 && html`<details class="fold" ref=${gone} open=${!!forgotten}><summary>${t("removedLines", { count: removed.length })}</summary>
      <ul class="lines">${removed.map((line) => html`<li key=${line.id}>
        <del>${line.text}</del><small>${nameField(line.field)} · ${sayWhen(line, findSource(talk, line)?.at)} <${Source} talk=${talk} line=${line} />
          <${PutBack} talk=${talk} line=${line} /></small>
        <${OldMessages} talk=${talk} line=${line.id} before=${line.text} isRemoved=${true} excluded=${excluded} opened=${line.text === forgotten} /></li>`)}</ul></details>`}
    ${brief.text && html`<details class="fold"><summary>${t("briefAsSent")}</summary><pre>${brief.text}</pre></details>`}`;
}

const findSource = (talk, line, origin) => talk.sources.get((line.entry ? line : origin)?.id);

// Say what a change of a line does to the next request: its head is new, so that nothing of it is in the provider's cache.
async function sayEffect({ conversation, path, branch }) {
  const order = { branch, message: localStorage.getItem("draft:" + conversation) || "…", ...toRequest(readChoice(conversation)) };
  const next = await api.post(path + "/estimate", order).catch(() => null);
  return next ? t(next.cost ? "newHeadCosts" : "newHead", { tokens: count(next.tokens), cost: dollars(next.cost) }) : "";
}

function Source({ talk, line, origin }) {
  const source = findSource(talk, line, origin);
  return html`${line.entry ? "" : `· ${t(origin ? "edited" : "byHand")} `}${source && html`· <a href=${linkTo(talk.conversation, source.entry, talk.branch, source.position)}
    aria-label=${t(source.states ? "sourceOf" : "notedInOf", { text: cut(line.text, 60) })}>${t(source.states ? "source" : "notedIn")}</a>`}`;
}

function PutBack({ talk, line }) {
  const [busy, setBusy] = useState(false);
  const add = async () => {
    setBusy(true);
    await talk.change(() => api.post(`${talk.path}/brief/${encodeURIComponent(line.id)}/restore`, undefined, { branch: talk.branch, everywhere: true }));
    setBusy(false);
  };
  return html`<button class="small" disabled=${busy} aria-label=${t("putBackLine", { text: cut(line.text, 60) })} onClick=${add}>${t("putBack")}</button>`;
}

function Marked({ talk, kind, title, help, undo, ids, entries }) {
  const known = new Map(entries.map((entry) => [entry.id, entry]));
  return html`<section aria-label=${title}><h2>${title}</h2><p class="quiet">${help} ${!ids.length && t("noneMarked")}</p>
    <ul class="lines">${ids.map((id) => {
      const text = cut(known.get(id)?.text || t("earlierMessage"));
      return html`<li key=${id} class="row"><a class="grow" href=${linkTo(talk.conversation, id)}>${text}</a>
        <button aria-label=${`${undo}: ${cut(text, 60)}`} onClick=${() => talk.change(() => api.remove(`${talk.path}/${kind}/${encodeURIComponent(id)}`, { branch: talk.branch }))}>${undo}</button></li>`;
    })}</ul></section>`;
}

function Topics({ talk, topics }) {
  const [begins, setBegins] = useState(new Map());
  useEffect(() => {
    let current = true;
    readPlaces(talk.path, talk.branch, topics.map((topic) => topic.first)).then((found) => current && setBegins(found), () => {});
    return () => { current = false; };
  }, [topics]);
  if (!topics.length) return null;
  const most = Math.max(...topics.map((topic) => topic.count));
  return html`<section aria-label=${t("topics")}><h2>${t("topics")}</h2>
    <ol class="timeline">${topics.map((topic) => {
      const words = topic.words.join(", ") || t("noWords");
      const text = plain(begins.get(topic.first)?.text ?? "").trim();
      return html`<li key=${topic.first}><small>${days(topic.at, topic.until)}</small>
        <button class="topic" onClick=${() => goTo(talk.conversation, talk.path, talk.branch, topic.first).catch(report)}>${text ? cut(text, 90) : words}<small>${text && words}</small></button>
        <svg class="bar" viewBox="0 0 100 4" preserveAspectRatio="none" aria-hidden="true"><rect width=${Math.max(1, (100 * topic.count) / most)} height="4" /></svg>
        <small>${t("messageCount", { count: topic.count })}</small></li>`;
    })}</ol></section>`;
}

function Changes({ changes }) {
  if (!changes.length) return null;
  // A line that was corrected is forgotten in its old form, too.
  const isForgotten = ({ revoked, added }, line) => revoked.includes(line.id) && !added.some(({ field }) => field === line.field);
  return html`<details class="fold"><summary>${t("changes", { count: changes.length })}</summary>
    <ol class="timeline changes">${[...changes].reverse().map((each, i) => html`<li key=${i}><small>${time(each.at)}</small><ul>
      ${each.added.map((line) => html`<li><span class="sign" aria-label=${t("added")}>+</span> ${line.text} <small>${nameField(line.field)}</small></li>`)}
      ${each.removed.map((line) => html`<li><span class="sign" aria-label=${t(isForgotten(each, line) ? "revoked" : "removed")}>−</span> <del>${line.text}</del> <small>${nameField(line.field)}${isForgotten(each, line) ? " · " + t("revoked") : ""}</small></li>`)}</ul></li>`)}</ol></details>`;
}
