// Why the model did not know something: words lead to whether the request had them, and to the messages that say them.
import { html, useEffect, useState } from "../ui.js";
import { t } from "../strings.js";
import * as api from "../api.js";
import { report, notify } from "../dialogs.js";
import { cut, day, plain } from "../format.js";
import { announce } from "../chat/talk.js";
import { cutAround, linkTo } from "../list/list.js";
import { UsePolicy } from "../memory/lines.js";
import { namePolicy } from "../money/policies.js";
import { nameVerdict } from "./runs.js";
import { findNearest, findWords, listTexts, listWords, sortByRarity } from "./words.js";

// Say where a request has the words of a search: first a line of the memory, then a message, then the words alone.
function judge(words, texts, lines) {
  const there = new Set(texts.flatMap(({ text }) => findWords(words, text)));
  const isLine = ({ text, kind }) => kind === "Head" && lines.some((line) => text.endsWith(line.text));
  const isPlain = ({ kind }) => kind === "Message" || kind === "Quote";
  const ordered = [texts.filter(isLine), texts.filter(isPlain), texts.filter((each) => !isLine(each) && !isPlain(each))].flat();
  const best = findNearest(words, ordered, ({ text }) => text);
  const where = best && { text: cutAround(best.item.text.replace(isLine(best.item) ? /^\w+: / : "", ""), words.join(" "), 120),
    kind: isLine(best.item) ? "Line" : best.item.kind, whole: best.item.whole };
  return { where, isWhole: best?.has.length === words.length, there: words.filter((word) => there.has(word)), missing: words.filter((word) => !there.has(word)) };
}

function Verdict({ found: { where, isWhole, there, missing } }) {
  if (isWhole) return html`<p><b>${t("yesIn" + where.kind, { text: where.text })}</b></p>`;
  return html`<p><b>${!missing.length ? t("allInRequest") : !there.length ? t("noneInRequest")
    : t("someInRequest", { there: there.join(", "), missing: missing.join(", ") })}</b>${where ? " " + t("nearestIn" + where.kind, { text: where.text }) : ""}</p>`;
}

// Return the line of an outline that stands for a message, with one of the words if there is one; empty for none.
function findOutline(text, words, texts) {
  const [message, lines] = [plain(text), texts.filter(({ kind }) => kind === "Head").map((each) => plain(each.text).replace(/^\s*(?:[-*]|\w+:)\s*/, ""))];
  const own = lines.filter((line) => line.split("…").some((part) => part.trim().length > 15 && message.includes(part.trim())));
  return own.find((line) => findWords(words, line).length) || own[0] || "";
}

// Return the line of the memory that says what a message says, with the most of the words.
function findLine(hit, words, statements) {
  const fitting = statements.filter(({ says }) => says.includes(hit.position));
  return findNearest(words, fitting, (line) => line.text, 1)?.item ?? fitting[0] ?? null;
}

// Return the line that was corrected or forgotten last of those that a message, or its note for Memory, still says.
function findChanged(hit, statements) {
  const fitting = statements.filter(({ changed, outdated, entry }) => changed && (outdated.includes(hit.position) || entry === hit.entry));
  return fitting.sort((one, other) => other.changed - one.changed)[0] ?? null;
}

const turnOf = (entry) => entry.slice(0, entry.lastIndexOf("-")); // pins and exclusions are of whole exchanges
const most = 30; // messages that a search finds, of which the best are shown
const shown = 5;

export function Find({ conversation, path, branch, turn, next, runs, policy, words, setWords, onChange }) {
  const [found, setFound] = useState(null);
  const [changes, setChanges] = useState(0); // of pins and of what is left out
  useEffect(() => {
    let current = true;
    const look = async () => {
      if (!words.trim()) return null;
      const listed = listWords(words);
      const [{ hits }, { requests }, { statements }, marks] = await Promise.all([
        api.get("/search", { q: listed.join(" "), conversation, branch, limit: most }).catch(() => ({ hits: [] })),
        next ? next() : api.get(`${path}/turns/${encodeURIComponent(turn)}/requests`, { branch }).catch(() => ({ requests: [] })),
        api.get(path + "/brief/statements", { branch }).catch(() => ({ statements: [] })), api.get(path + "/marks", { branch })]);
      const lines = statements.filter((each) => !each.changed);
      const texts = requests.map((each) => each.body).filter(Boolean).flatMap(listTexts);
      const judged = requests.some((each) => each.body) && judge(listed, texts, lines);
      const fitting = sortByRarity(listed, hits.filter((hit) => 2 * findWords(listed, hit.text).length >= listed.length), (hit) => hit.text);
      // The message that the answer quotes comes first, also where only its card has the words.
      const isQuoted = ({ text }) => judged?.where && ["Message", "Card"].includes(judged.where.kind) && judged.where.whole.startsWith(text.trim().slice(0, 80));
      const all = [...new Set([...hits.filter(isQuoted), ...(fitting.length ? fitting : sortByRarity(listed, hits, (hit) => hit.text))])];
      const best = all.slice(0, shown).map((hit) => {
        const line = findLine(hit, listed, statements);
        const isMarked = (ids) => ids.some((id) => turnOf(id) === turnOf(hit.entry));
        return { hit, changed: findChanged(hit, statements), isPinned: isMarked(marks.pinned), isOut: isMarked(marks.excluded), outline: findOutline(hit.text, listed, texts), line, isLineSent: !!line && texts.some(({ text, kind }) => kind === "Head" && text.endsWith(line.text)) };
      });
      return { hits: best, ...judged };
    };
    const later = setTimeout(() => look().then((all) => current && setFound(all), () => {}), 250);
    return () => { current = false; clearTimeout(later); };
  }, [words, turn, branch, runs, changes]);
  return html`<p class="find-help"><label for="find-seen">${t("findHelp")}</label></p>
    <input class="wide" id="find-seen" type="search" placeholder=${t("findSeen")} value=${words} onInput=${(e) => setWords(e.target.value)} />
    <div role="status" class=${found ? "answer" : ""}>${found && html`
      ${found.there && html`<${Verdict} found=${found} />`}
      ${found.hits.length ? html`<p class="quiet">${t("inMessages")}</p><ul class="runs">${found.hits.map(({ hit, ...known }) => html`<${Hit} key=${hit.entry} hit=${hit} isNext=${!!next} words=${words} ...${known} policy=${policy}
          run=${runs.find((run) => run.first <= hit.position && hit.position <= run.last)} conversation=${conversation} path=${path} branch=${branch} onChange=${() => { setChanges((count) => count + 1); onChange(); }} />`)}</ul>`
        : html`<p class="quiet">${t("noHit")}</p>`}`}</div>`;
}

// Say why a message was in the request or not.
function explain({ verdict, reason, keep }, policy) {
  if (reason === "memory card left out") return t("why_cardless");
  if (keep) return t("why_shortened");
  if (reason === "pinned") return t("why_pinned");
  if (verdict === "summarised") return t(reason === "outline" ? "why_outline" : reason === "brief" ? "why_brief" : "why_summary");
  if (verdict === "left_out") return t(reason === "excluded" ? "why_excluded" : reason === "noted a forgotten line" ? "why_forgotten" : "why_left_out", { policy: namePolicy(policy) });
  return verdict === "handed_out" ? reason : t("why_" + verdict);
}

// Say which line of the memory a message still says that was corrected, forgotten or removed, and since when.
const nameChange = ({ text, now, changed, forgotten }) => t(now ? "lineCorrected" : forgotten ? "lineForgotten" : "lineRemoved", { text: cut(text, 90), now: cut(now, 90), day: day(changed) });

function Hit({ hit, isNext, changed, words, run, isPinned, isOut, outline, line, isLineSent, policy, conversation, path, branch, onChange }) {
  const change = (call, kind, said) => async () => {
    try {
      await call(`${path}/${kind}/${encodeURIComponent(hit.entry)}`, { branch });
      notify(t(said));
      announce(conversation);
      onChange();
    } catch (error) {
      report(error);
    }
  };
  const isGone = run && !["sent", "held", "recalled"].includes(run.verdict);
  const wasOut = run?.reason === "excluded";
  const isOutlined = isGone && !wasOut && !!outline;
  const about = !run ? "" : isOutlined ? t("why_outlined", { text: cut(outline, 120) }) : explain(run, policy);
  return html`<li class="hit"><span class=${"verdict " + (run?.verdict || "")}>${nameVerdict(isOutlined ? { verdict: "outlined" } : run ?? { verdict: "later" }, isNext)}</span> ${cutAround(hit.text, words, 160)}
    ${run && html`<p>${about}${isGone && (run.reason === "brief" || (run.reason === "outline" && line)) ? " " + (line ? t(isLineSent ? "lineWasSent" : "lineNotSent", { text: cut(line.text, 90) }) : t("briefLacksIt")) : ""}${changed && (isGone || run.verdict === "recalled" || run.keep) ? " " + nameChange(changed) : ""}</p>`}
    <p class="ways"><a href=${linkTo(conversation, hit.entry, branch, hit.position)}>${t("whereItHappened")}</a>
      ${isOut ? html`<button onClick=${change(api.remove, "exclusions", "includedNow")}>${t("include")}</button>`
        : isPinned ? html`<button title=${t("pinnedPair")} onClick=${change(api.remove, "pins", "unpinnedNow")}>${t("unpin")}</button>`
        : run && !isGone && run.verdict !== "recalled" ? html`<button onClick=${change(api.put, "exclusions", "excludedNow")}>${t("exclude")}</button>`
        : run && html`<button title=${t("pinnedPair")} onClick=${change(api.put, "pins", "pinnedNow")}>${t("sendAlways")}</button>
        ${(isOutlined || run.verdict === "recalled") && html`<button onClick=${change(api.put, "exclusions", "excludedNow")}>${t("exclude")}</button>`}
        ${run.verdict === "left_out" && !policy.includes("Memory(") && html`<${UsePolicy} conversation=${conversation} policy="Memory()" />`}
        <a href=${`#/c/${encodeURIComponent(conversation)}/memory/add/${encodeURIComponent(cut(plain(hit.text), 120))}`}>${t("rememberIt")}</a>`}</p></li>`;
}
