// The requests of a turn, to be read and byte for byte, with what is new since the request before, and where the cached
// prefix ends.
import { html, useEffect, useRef, useState } from "../ui.js";
import { t } from "../strings.js";
import * as api from "../api.js";
import { count } from "../format.js";
import { findNew, readRequest } from "./readable.js";
import { Loaded } from "./runs.js";

// Return what two texts begin with in common: its length in characters.
export function countShared(one, other) {
  let low = 0;
  let high = Math.min(one.length, other.length);
  while (low < high) {
    const middle = Math.ceil((low + high) / 2);
    if (one.startsWith(other.slice(0, middle))) low = middle; else high = middle - 1;
  }
  return low;
}

// Cut a text at marks {at, label, name}, in order: [text, mark, text, …].
function cutAt(text, marks) {
  const parts = [];
  let from = 0;
  for (const mark of marks.sort((a, b) => a.at - b.at)) {
    parts.push(text.slice(from, mark.at), mark);
    from = mark.at;
  }
  return [...parts, text.slice(from)];
}

export function Request({ path, branch, turn, turns, next, values }) {
  const at = next ? turns.length : turns.findIndex((each) => each.turn === turn);
  const read = async () => {
    const load = (id) => api.get(`${path}/turns/${encodeURIComponent(id)}/requests`, { branch });
    const [{ requests }, before] = await Promise.all([next ? next() : load(turn), at > 0 ? load(turns[at - 1].turn) : { requests: [] }]);
    return { requests, before: before.requests.filter((each) => each.body).pop() };
  };
  return html`<${Loaded} values=${[...values, at]} read=${read} draw=${({ requests, before }) => requests.length
    ? requests.map((each, i) => html`<${One} key=${i} request=${each} isNext=${!!next} before=${i ? requests[i - 1] : before} />`)
    : html`<p class="quiet">${t("nothingSent")}</p>`} />`;
}

// Each message of a request begins a line. No character is added.
const starts = /(?=\{"(?:role|type)":)/;
const cutLines = (text) => text.split(starts).map((line) => html`<span class="line-of">${line}</span>`);

// A box that begins at what is new.
function Box({ children, body, label }) {
  const box = useRef(null);
  useEffect(() => {
    const mark = box.current.querySelector("mark.new");
    if (mark) box.current.scrollTop = mark.offsetTop - box.current.offsetTop - 80;
  }, [body]);
  return html`<div class="request" ref=${box} tabindex="0" role="region" aria-label=${label}>${children}</div>`;
}

const mark = (name, label) => html`<mark class=${"cut " + name}>${label}</mark>`;

function Readable({ request: { body, usage, cached_until: cached }, before }) {
  const read = readRequest(body);
  if (!read) return "";
  const fresh = before?.body ? findNew(read.items, readRequest(before.body)?.items || []) : 0;
  // The share of the bytes that was cached, as a place in the list.
  const end = cached ? read.items.findIndex(({ at, size }) => at + size / 2 > (cached / body.length) * read.size) : -1;
  return html`<${Box} body=${body} label=${t("readable")}>${read.items.map(({ label, text }, i) => html`
    ${i === end && mark("cached", t("cachedUntilHere", { cached: count(usage.cached) }))}${fresh > 0 && i === fresh && mark("new", t("newFromHere"))}
    <div class=${"said" + (i < fresh ? " shared" : "")} key=${i}><small>${label}</small><div class="plain">${text}</div></div>`)}
    <p class="quiet">${t("requestSettings", { settings: read.settings })}</p><//>`;
}

function One({ request, before, isNext }) {
  const { body, usage, model, problem } = request;
  const [isExact, setExact] = useState(false);
  if (body === null) return html`<h3>${model}</h3><p class="quiet">${problem}</p>`;
  const shared = countShared(body, before?.body || "");
  // A message that differs is new from its beginning on.
  const begun = Math.max(...['{"role":', '{"type":'].map((start) => body.lastIndexOf(start, shared - 1)));
  const fresh = begun < 0 || /\}[,\]]/.test(body.slice(begun, shared)) ? shared : begun;
  // The service counts characters, JavaScript counts those beyond the first plane twice.
  const cached = request.cached_until ? [...body].slice(0, request.cached_until).join("").length : 0;
  const marks = [...(shared ? [{ at: fresh, name: "new", label: t("newFromHere") }] : []),
    ...(cached ? [{ at: cached, name: "cached", label: t("cachedUntilHere", { cached: count(usage.cached) }) }] : [])];
  return html`<h3>${model}</h3>
    <p class="quiet">${t("sharedWithBefore", { shared: count(shared), all: count(body.length) })} ${before?.body && before.model !== model && t("otherForm", { model: before.model })}
      ${" "}${isNext ? "" : !usage?.input ? t("cacheUnknown") : usage.cached ? t("readFromCache", { cached: count(usage.cached), input: count(usage.input) }) : t("readNothing")}
      <button class="small" onClick=${() => navigator.clipboard?.writeText(body)}>${t("copy")}</button></p>
    <${Readable} request=${request} before=${before} />
    <details class="fold" onToggle=${(event) => setExact(event.currentTarget.open)}><summary>${t("exactBytes")}</summary>${isExact && html`
      <${Box} body=${body} label=${t("exactBytes")}><pre>${cutAt(body, marks).map((part, i) => (typeof part === "string"
        ? html`<span class=${i === 0 && shared ? "shared" : ""}>${cutLines(part)}</span>` : mark(part.name, part.label)))}</pre><//>`}</details>`;
}
