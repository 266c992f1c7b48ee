// Earlier messages that still say what a line of the memory said before it was corrected or forgotten.
import { html, useEffect, useState } from "../ui.js";
import { t } from "../strings.js";
import * as api from "../api.js";
import { day } from "../format.js";
import { readPlaces } from "../inspector/runs.js";
import { findWords, listTexts, listWords } from "../inspector/words.js";
import { cutAround, linkTo } from "../list/list.js";
import { readChoice, toRequest } from "../money/policies.js";

const isOut = (run) => run?.verdict === "left_out" && run.reason === "excluded"; // with its exchange

// Return the messages that still say what a line says no more: {hit, isOut, isSent, isShort}, by what the next request
// has of each; oldest first.
async function findOld({ conversation, path, branch }, line, before) {
  const message = localStorage.getItem("draft:" + conversation) || "…";
  const [{ statements }, { manifest: { runs }, requests }] = await Promise.all([api.get(path + "/brief/statements", { branch }),
    api.post(path + "/preview", { branch, message, ...toRequest(readChoice(conversation)) }).catch(() => ({ manifest: { runs: [] }, requests: [] }))]);
  const { outdated = [], changed, text: after, now } = statements.find((each) => each.line === line) || {};
  const words = listWords(before).filter((word) => !findWords([word], (changed ? now : after) || "").length);
  const places = await readPlaces(path, branch, outdated);
  // Outlines and summaries may repeat what a message says.
  const repeated = requests.flatMap(({ body }) => listTexts(body || "")).filter(({ text, kind }) => kind === "Head" && findWords(words, text).length)
    .map(({ text }) => text.trim().replace(/…$/, "")).filter((text) => text.length > 8);
  return outdated.filter((position) => places.has(position)).map((position) => {
    const { id, text, at } = places.get(position);
    const run = runs.find(({ first, last }) => first <= position && position <= last);
    return { hit: { entry: id, position, text, at }, isOut: isOut(run), isSent: ["sent", "held", "recalled"].includes(run?.verdict), isShort: repeated.some((part) => text.includes(part)) };
  });
}

// `excluded` are the messages that are left out already.
export function OldMessages({ talk, line, before, excluded, isRemoved = false, opened = false }) {
  const how = t(isRemoved ? "removed" : "correctedWord");
  const [open, setOpen] = useState(opened);
  const [found, setFound] = useState(null);
  const [busy, setBusy] = useState(false);
  const [problem, setProblem] = useState("");
  useEffect(() => { if (opened) setOpen(true); }, [opened, line]);
  useEffect(() => {
    let current = true;
    if (open) findOld(talk, line, before).then((list) => { if (current) { setFound(list); setProblem(""); } }, (error) => current && setProblem(error.message));
    return () => { current = false; };
  }, [open, line, before, excluded.join()]);
  if (!open) return html`<p class="old-more"><button class="small" onClick=${() => setOpen(true)}>${t("oldMessages", { how })}</button></p>`;
  const mark = async (call, hits) => {
    setBusy(true);
    await talk.change(async () => { for (const hit of hits) await call(`${talk.path}/exclusions/${encodeURIComponent(hit.entry)}`, { branch: talk.branch }); });
    setBusy(false);
  };
  const left = (found || []).filter(({ hit, isOut }) => !isOut && !excluded.includes(hit.entry));
  const sent = left.filter(({ isSent, isShort }) => isSent || isShort).length;
  const head = !found ? t("loading") : !found.length ? t("oldNone", { how }) : !left.length ? t("oldAllOut", { how }) : t("oldCount", { count: left.length, how });
  return html`<div class="card-note old"><p role="status">${problem || html`<b>${head}</b> ${left.length ? t(sent ? "oldSent" : "oldNotSent", { sent, count: left.length }) : ""}`}</p>
    ${found?.length > 0 && html`<ul class="lines">${found.map(({ hit, isOut, isSent, isShort }) => {
      const isMarked = excluded.includes(hit.entry);
      return html`<li key=${hit.entry} class="row"><span class="grow"><a href=${linkTo(talk.conversation, hit.entry, talk.branch, hit.position)}>${cutAround(hit.text, before, 150)}</a>
          <small>${day(hit.at)} · ${t(isMarked ? "excluded" : isOut ? "oldOutToo" : isSent ? "oldIsSent" : isShort ? "oldIsShort" : "oldIsNotSent")}</small></span>
        ${(isMarked || !isOut) && html`<button disabled=${busy} aria-label=${`${t(isMarked ? "include" : "exclude")}: ${cutAround(hit.text, before, 60)}`} onClick=${() => mark(isMarked ? api.remove : api.put, [hit])}>${t(isMarked ? "includeShort" : "excludeShort")}</button>`}</li>`;
    })}</ul>`}
    ${left.length > 1 && html`<p><button class="primary" disabled=${busy} onClick=${() => mark(api.put, left.map(({ hit }) => hit))}>${t("oldLeaveAll", { count: left.length })}</button></p>`}</div>`;
}
