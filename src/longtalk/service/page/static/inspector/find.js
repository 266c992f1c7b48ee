// Why the model did not know something: words lead to whether the request had them, and to the messages that say them.
import { html, useEffect, useState } from "../ui.js";
import { t } from "../strings.js";
import * as api from "../api.js";
import { report, notify } from "../dialogs.js";
import { cut } from "../format.js";
import { announce } from "../chat/talk.js";
import { cutAround, linkTo } from "../list/list.js";
import { UsePolicy } from "../memory/lines.js";
import { namePolicy } from "../money/policies.js";
import { findNearest, findWords, listTexts, listWords } from "./words.js";

// Say where a request has the words of a search: first a line of the memory, then a message, then the words alone.
function judge(words, bodies, lines) {
  const texts = bodies.flatMap(listTexts);
  const there = new Set(texts.flatMap(({ text }) => findWords(words, text)));
  const isLine = ({ text, isHead }) => isHead && lines.some((line) => text.endsWith(line.text));
  const best = findNearest(words, [...texts.filter(isLine), ...texts.filter((each) => !isLine(each))], ({ text }) => text);
  const where = best && { text: cutAround(best.item.text.replace(isLine(best.item) ? /^\w+: / : "", ""), words.join(" "), 120),
    kind: isLine(best.item) ? "Line" : best.item.isHead ? "Head" : "Message" };
  return { where, isWhole: best?.has.length === words.length, there: words.filter((word) => there.has(word)), missing: words.filter((word) => !there.has(word)) };
}

function Verdict({ found: { where, isWhole, there, missing } }) {
  if (isWhole) return html`<p><b>${t("yesIn" + where.kind, { text: where.text })}</b></p>`;
  return html`<p><b>${!missing.length ? t("allInRequest") : !there.length ? t("noneInRequest")
    : t("someInRequest", { there: there.join(", "), missing: missing.join(", ") })}</b>${where ? " " + t("nearestIn" + where.kind, { text: where.text }) : ""}</p>`;
}

export function Find({ conversation, path, branch, turn, next, runs, policy, words, setWords, onChange }) {
  const [found, setFound] = useState(null);
  useEffect(() => {
    let current = true;
    const look = async () => {
      if (!words.trim()) return null;
      const [{ hits }, { requests }, brief] = await Promise.all([
        api.get("/search", { q: words, conversation, limit: 10 }).catch(() => ({ hits: [] })),
        next ? next() : api.get(`${path}/turns/${encodeURIComponent(turn)}/requests`, { branch }).catch(() => ({ requests: [] })),
        api.get(path + "/brief", { branch }).catch(() => ({ lines: [] }))]);
      const bodies = requests.map((each) => each.body).filter(Boolean);
      const listed = listWords(words);
      const fitting = hits.filter((hit) => 2 * findWords(listed, hit.text).length >= listed.length);
      return { hits: (fitting.length ? fitting : hits).slice(0, 5), lines: brief.lines, ...(bodies.length && judge(listed, bodies, brief.lines)) };
    };
    const later = setTimeout(() => look().then((all) => current && setFound(all), () => {}), 250);
    return () => { current = false; clearTimeout(later); };
  }, [words, turn, branch]);
  return html`<p class="find-help"><label for="find-seen">${t("findHelp")}</label></p>
    <input class="wide" id="find-seen" type="search" placeholder=${t("findSeen")} value=${words} onInput=${(e) => setWords(e.target.value)} />
    <div role="status" class=${found ? "answer" : ""}>${found && html`
      ${found.there && html`<${Verdict} found=${found} />`}
      ${found.hits.length ? html`<p class="quiet">${t("inMessages")}</p><ul class="runs">${found.hits.map((hit) => html`<${Hit} key=${hit.entry} hit=${hit} words=${words} lines=${found.lines} policy=${policy}
          run=${runs.find((run) => run.first <= hit.position && hit.position <= run.last)} conversation=${conversation} path=${path} branch=${branch} onChange=${onChange} />`)}</ul>`
        : html`<p class="quiet">${t("noHit")}</p>`}`}</div>`;
}

// Say why a message was in the request or not.
function explain({ verdict, reason, keep }, policy) {
  if (keep) return t("why_shortened");
  if (reason === "pinned") return t("why_pinned");
  if (verdict === "summarised") return t(reason === "brief" ? "why_brief" : "why_summary");
  if (verdict === "left_out") return t(reason === "excluded" ? "why_excluded" : "why_left_out", { policy: namePolicy(policy) });
  return verdict === "handed_out" ? reason : t("why_" + verdict);
}

function Hit({ hit, words, run, lines, policy, conversation, path, branch, onChange }) {
  const [isPinned, setPinned] = useState(false);
  const change = async (call, kind, said) => {
    await call(`${path}/${kind}/${encodeURIComponent(hit.entry)}`, { branch });
    notify(t(said));
    announce(conversation);
    onChange();
  };
  const pin = () => change(api.put, "pins", "pinnedNow").then(() => setPinned(true), report);
  const isGone = run && !["sent", "held", "recalled"].includes(run.verdict);
  const isOut = isGone && run.verdict === "left_out" && run.reason === "excluded";
  const listed = listWords(words);
  const own = lines.filter((each) => each.entry === hit.entry);
  const nearest = findNearest(listed, [...own, ...lines], (each) => each.text);
  const line = nearest?.has.length === listed.length || own.includes(nearest?.item) ? nearest.item : own[0];
  return html`<li class="hit"><span class=${"verdict " + (run?.verdict || "")}>${t("verdict_" + (run?.verdict || "later"))}</span> ${cutAround(hit.text, words, 160)}
    ${run && html`<p>${explain(run, policy)}${isGone && run.reason === "brief" ? " " + (line ? t("briefHasIt", { text: cut(line.text, 90) }) : t("briefLacksIt")) : ""}</p>`}
    <p class="ways"><a href=${linkTo(conversation, hit.entry, branch, hit.position)}>${t("whereItHappened")}</a>
      ${isOut ? html`<button onClick=${() => change(api.remove, "exclusions", "includedNow").catch(report)}>${t("include")}</button>`
        : run && !isGone ? html`<button onClick=${() => change(api.put, "exclusions", "excludedNow").catch(report)}>${t("exclude")}</button>`
        : isGone && html`<button disabled=${isPinned} onClick=${pin}>${isPinned ? t("isPinned") : t("sendAlways")}</button>
        ${run.verdict === "left_out" && !policy.includes("Memory(") && html`<${UsePolicy} conversation=${conversation} policy="Memory()" />`}
        <a href=${`#/c/${encodeURIComponent(conversation)}/memory`}>${t("rememberIt")}</a>`}</p></li>`;
}
