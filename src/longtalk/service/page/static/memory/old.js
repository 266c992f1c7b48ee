// Earlier messages that still say what a line of the memory said before it was corrected or forgotten.
import { html, useEffect, useState } from "../ui.js";
import { t } from "../strings.js";
import * as api from "../api.js";
import { day } from "../format.js";
import { readPlaces } from "../inspector/runs.js";
import { findWords, listTexts, listWords } from "../inspector/words.js";
import { cutAround, linkTo } from "../list/list.js";
import { readChoice, toRequest } from "../money/policies.js";

const most = 100; // messages that a search finds
const isOut = (run) => run?.verdict === "left_out" && run.reason === "excluded"; // with its exchange

// Return the messages that have half of the words of a line at least, one of those that were taken from it among them:
// {hit, isOut, isSent, isShort}, by what the next request has of each; oldest first.
async function findOld({ conversation, path, branch }, before, after) {
  const words = listWords(before);
  const gone = words.filter((word) => !findWords([word], after).length);
  if (!gone.length) return [];
  const message = localStorage.getItem("draft:" + conversation) || "…";
  const [{ hits }, { manifest: { runs }, requests }] = await Promise.all([api.get("/search", { q: before, conversation, limit: most }),
    api.post(path + "/preview", { branch, message, ...toRequest(readChoice(conversation)) }).catch(() => ({ manifest: { runs: [] }, requests: [] }))]);
  const fitting = hits.filter(({ text }) => 2 * findWords(words, text).length >= words.length && findWords(gone, text).length);
  const here = await readPlaces(path, branch, fitting.map((hit) => hit.position));
  // Outlines and summaries may repeat what a message says.
  const repeated = requests.flatMap(({ body }) => listTexts(body || "")).filter(({ text, kind }) => kind === "Head" && findWords(gone, text).length)
    .map(({ text }) => text.trim().replace(/…$/, "")).filter((text) => text.length > 8);
  return fitting.filter((hit) => here.get(hit.position)?.id === hit.entry).sort((a, b) => a.position - b.position).map((hit) => {
    const run = runs.find(({ first, last }) => first <= hit.position && hit.position <= last);
    return { hit, isOut: isOut(run), isSent: ["sent", "held", "recalled"].includes(run?.verdict), isShort: repeated.some((text) => hit.text.includes(text)) };
  });
}

// `excluded` are the messages that are left out already.
export function OldMessages({ talk, before, after = "", excluded, opened = false }) {
  const [open, setOpen] = useState(opened);
  const [found, setFound] = useState(null);
  const [busy, setBusy] = useState(false);
  const [problem, setProblem] = useState("");
  useEffect(() => { if (opened) setOpen(true); }, [opened, after]);
  useEffect(() => {
    let current = true;
    if (open) findOld(talk, before, after).then((list) => { if (current) { setFound(list); setProblem(""); } }, (error) => current && setProblem(error.message));
    return () => { current = false; };
  }, [open, before, after, excluded.join()]);
  if (!open) return html`<p class="old-more"><button class="small" onClick=${() => setOpen(true)}>${t("oldMessages")}</button></p>`;
  const mark = async (call, hits) => {
    setBusy(true);
    await talk.change(async () => { for (const hit of hits) await call(`${talk.path}/exclusions/${encodeURIComponent(hit.entry)}`, { branch: talk.branch }); });
    setBusy(false);
  };
  const left = (found || []).filter(({ hit, isOut }) => !isOut && !excluded.includes(hit.entry));
  const sent = left.filter(({ isSent, isShort }) => isSent || isShort).length;
  const head = !found ? t("loading") : !found.length ? t("oldNone") : !left.length ? t("oldAllOut") : t(left.length === 1 ? "oldOne" : "oldCount", { count: left.length });
  return html`<div class="card-note old"><p role="status">${problem || html`<b>${head}</b> ${left.length ? t(sent ? "oldSent" : "oldNotSent", { sent }) : ""}`}</p>
    ${found?.length > 0 && html`<ul class="lines">${found.map(({ hit, isOut, isSent, isShort }) => {
      const isMarked = excluded.includes(hit.entry);
      return html`<li key=${hit.entry} class="row"><span class="grow"><a href=${linkTo(talk.conversation, hit.entry, talk.branch, hit.position)}>${cutAround(hit.text, before, 150)}</a>
          <small>${day(hit.at)} · ${t(isMarked ? "excluded" : isOut ? "oldOutToo" : isSent ? "oldIsSent" : isShort ? "oldIsShort" : "oldIsNotSent")}</small></span>
        ${(isMarked || !isOut) && html`<button disabled=${busy} aria-label=${`${t(isMarked ? "include" : "exclude")}: ${cutAround(hit.text, before, 60)}`} onClick=${() => mark(isMarked ? api.remove : api.put, [hit])}>${t(isMarked ? "includeShort" : "excludeShort")}</button>`}</li>`;
    })}</ul>`}
    ${left.length > 1 && html`<p><button class="primary" disabled=${busy} onClick=${() => mark(api.put, left.map(({ hit }) => hit))}>${t("oldLeaveAll", { count: left.length })}</button></p>`}</div>`;
}
