// One entry of a conversation, with what can be done with it.
import { html, memo, useEffect, useRef, useState } from "../ui.js";
import { t } from "../strings.js";
import * as api from "../api.js";
import { clock, count as formatCount, dollars, longDay, nameReason, time } from "../format.js";
import { notify } from "../dialogs.js";
import { useKept } from "../store.js";
import { renderBlocks } from "../markdown.js";

export function Markdown({ text }) {
  const blocks = renderBlocks(text);
  if (blocks.length === 1) return html`<div class="markdown" dangerouslySetInnerHTML=${{ __html: blocks[0] }} />`;
  return html`<${LongMarkdown} key=${text} blocks=${blocks} />`;
}

// A long text, drawn from its end: some blocks in each frame, so that the page answers meanwhile.
function LongMarkdown({ blocks }) {
  const [drawn, setDrawn] = useState(step);
  useEffect(() => {
    const frame = drawn < blocks.length && requestAnimationFrame(() => setDrawn(drawn + step));
    return () => cancelAnimationFrame(frame);
  }, [drawn]);
  return html`<div class="markdown long">${blocks.map((made, i) => html`<${Block} key=${i} made=${i >= blocks.length - drawn ? made : ""} />`)}</div>`;
}

const step = 4;

export const Block = memo(({ made }) => html`<div class="block" dangerouslySetInnerHTML=${{ __html: made }} />`);

export function findImages(native) {
  try {
    const content = JSON.parse(native).content;
    return Array.isArray(content) ? content.map((part) => part.image_url?.url || "").filter((url) => url.startsWith("data:image/")) : [];
  } catch {
    return [];
  }
}

export function Folded({ reasoning, calls = [], results = [] }) {
  return html`
    ${reasoning && html`<details><summary>${t("reasoning")}</summary><pre>${reasoning}</pre></details>`}
    ${calls.map((call) => html`<details><summary>${t("toolCall", { name: call.name })}</summary><pre>${call.arguments}</pre></details>`)}
    ${results.map((each) => html`<details><summary>${t("toolResult", { name: each.name })}</summary><pre>${each.text}</pre></details>`)}`;
}

function Versions({ names, current, onOpen }) {
  const at = names.indexOf(current);
  return html`<span class="versions">
    <button aria-label=${t("previousVersion")} disabled=${at < 1} onClick=${() => onOpen(names[at - 1])}>‹</button>
    ${at + 1}/${names.length}
    <button aria-label=${t("nextVersion")} disabled=${at + 1 >= names.length} onClick=${() => onOpen(names[at + 1])}>›</button>
  </span>`;
}

// What stands in place of older messages from here on.
function Compacted({ compaction: { summary, tokens, reason, isReplaced }, talk }) {
  return html`<details class="compacted"><summary>${t(!summary ? "droppedHere" : isReplaced ? "replacedHere" : "outlinedHere")}</summary>
    <p>${t(summary ? "replacedBy" : "replacedByNothing")} ${t("replacedWhy", { reason: nameReason(reason), tokens: formatCount(tokens) })}${" "}
      <a href=${`#/c/${encodeURIComponent(talk.id)}/inspector/compaction`}>${t("moreOfIt")}</a></p>
    ${summary && html`<pre tabindex="0">${summary}</pre>`}</details>`;
}

// All that is drawn of an entry is a property of its own, so that a turn elsewhere draws no other entry again.
export const Entry = memo(function Entry({ entry, talk, versions, compaction, branch, pinned, excluded, out, cost, busy, isCut, found, inspected, place, count, beginsDay }) {
  const [draft, setDraft] = useKept(`edit:${talk.path}/${entry.id}`);
  const box = useRef(null);
  const isKept = useRef(draft !== null); // it was begun before, so that the reader may be elsewhere now
  useEffect(() => { if (!isKept.current) box.current?.focus(); isKept.current = false; }, [draft === null]);
  const { role, usage } = entry;
  const isNote = role !== "user" && role !== "assistant" && role !== "tool" || entry.mark === "note" || entry.mark === "event";
  const name = isNote ? t("noteRole") : role === "user" ? t("you") : t("answer");
  const fork = async () => {
    const made = await api.post(talk.path + "/branches", { source: branch, at: entry.turn });
    await talk.open(made.name);
    notify(t("forked"), { action: t("back"), onAction: () => talk.open(branch) });
  };
  const save = (event) => {
    event.preventDefault();
    if (busy || !draft.trim()) return;
    setDraft(null);
    talk.send({ message: draft, edits: entry.id }, draft);
  };
  const onKey = (event) => {
    if (event.key === "Escape") { event.stopPropagation(); setDraft(null); }
    else if (event.key === "Enter" && !event.shiftKey && !event.isComposing) save(event);
  };
  return html`<article id=${"entry-" + entry.id} class=${`entry ${isNote ? "note" : role} ${out ? "out" : ""} ${found ? "found" : ""} ${inspected ? "inspected" : ""}`} aria-label=${name}
    tabindex="-1" aria-posinset=${place} aria-setsize=${count}>
    ${beginsDay && html`<p class="day">${longDay(entry.at)}</p>`}
    ${compaction && html`<${Compacted} compaction=${compaction} talk=${talk} />`}
    ${isNote && html`<small>${name}</small>`}
    <${Folded} ...${entry} />
    ${findImages(entry.native).map((url) => html`<img class="picture" src=${url} alt="" />`)}
    ${draft !== null
      ? html`<form onSubmit=${save}><textarea ref=${box} aria-label=${t("edit")} value=${draft} onInput=${(e) => setDraft(e.target.value)} onKeyDown=${onKey} rows="4" />
          <span class="row"><button class="primary" disabled=${busy || !draft.trim()}>${t("saveAndSend")}</button> <button type="button" onClick=${() => setDraft(null)}>${t("cancel")}</button></span><small>${t("editHelp")}</small></form>`
      : role === "assistant" ? html`<${Markdown} text=${entry.text} />`
      : role === "tool" ? null : html`<div class="plain">${entry.text}</div>`}
    ${isCut && html`<p class="quiet">${t("cutOff")}</p>`}
    <footer>
      ${versions && html`<${Versions} names=${versions} current=${branch} onOpen=${(name) => talk.open(name)} />`}
      ${usage && html`<small>${t(cost === undefined ? "usage" : cost === null ? "usageUnpriced" : "usageCost", { input: formatCount(usage.input), output: formatCount(usage.output), cost: dollars(cost) })}</small>`}
      ${pinned && html`<small>${t("pinned")}</small>`}${out && html`<small>${t(excluded ? "excluded" : "oldOutToo")}</small>`}
      <small class="clock" title=${time(entry.at)}>${clock(entry.at)}</small>
      <span class="actions">
        ${entry.text && html`<button onClick=${() => navigator.clipboard?.writeText(entry.text)}>${t("copy")}</button>`}
        ${role === "user" && !isNote && html`<button disabled=${busy} onClick=${() => setDraft(entry.text)}>${t("edit")}</button>`}
        ${role === "assistant" && html`<button disabled=${busy} onClick=${() => talk.send({ regenerates: entry.turn })}>${t("regenerate")}</button>
          <button disabled=${busy} aria-label=${t("fork")} title=${t("fork")} onClick=${fork}>${t("forkShort")}</button>`}
        ${role === "assistant" && html`<a href=${`#/c/${encodeURIComponent(talk.id)}/inspector`} title=${t("inspector")} onClick=${() => talk.inspect(entry.turn)}>${t("inspectorTab")}</a>`}
        <button disabled=${busy} title=${pinned ? null : t("pinHelp")} onClick=${() => talk.mark("pins", entry.id, !pinned)}>${t(pinned ? "unpin" : "pin")}</button>
        <button disabled=${busy} aria-label=${t(out ? "include" : "exclude")} title=${t(out ? "include" : "exclude")} onClick=${() => talk.mark("exclusions", entry.id, !out)}>${t(out ? "includeShort" : "excludeShort")}</button>
      </span>
    </footer>
  </article>`;
});
