// Why the model did not know something: words lead to whether the request had them, and to the messages that say them.
import { html, useEffect, useState } from "../ui.js";
import { t } from "../strings.js";
import * as api from "../api.js";
import { report, notify } from "../dialogs.js";
import { cut, splitWords } from "../format.js";
import { announce } from "../chat/talk.js";
import { cutAround, linkTo } from "../list/list.js";
import { choosePolicy } from "../money/policies.js";

// Return the words of a search that a request has, and those that it lacks. `bodies` are its texts, as they were sent.
function sortWords(words, bodies) {
  const text = bodies.join("\n").toLowerCase();
  const listed = [...new Set(splitWords(words))];
  const isThere = (word) => text.includes(JSON.stringify(word).slice(1, -1));
  return { there: listed.filter(isThere), missing: listed.filter((word) => !isThere(word)) };
}

export function Find({ conversation, path, branch, turn, next, runs, policy, words, setWords, onChange }) {
  const [found, setFound] = useState(null);
  useEffect(() => {
    let current = true;
    const look = async () => {
      if (!words.trim()) return null;
      const [{ hits }, { requests }, brief] = await Promise.all([
        api.get("/search", { q: words, conversation, limit: 5 }).catch(() => ({ hits: [] })),
        next ? next() : api.get(`${path}/turns/${encodeURIComponent(turn)}/requests`, { branch }).catch(() => ({ requests: [] })),
        api.get(path + "/brief", { branch }).catch(() => ({ lines: [] }))]);
      const bodies = requests.map((each) => each.body).filter(Boolean);
      return { hits, lines: brief.lines, ...(bodies.length && sortWords(words, bodies)) };
    };
    const later = setTimeout(() => look().then((all) => current && setFound(all), () => {}), 250);
    return () => { current = false; clearTimeout(later); };
  }, [words, turn, branch]);
  return html`<p class="find-help"><label for="find-seen">${t("findHelp")}</label></p>
    <input class="wide" id="find-seen" type="search" placeholder=${t("findSeen")} value=${words} onInput=${(e) => setWords(e.target.value)} />
    <div role="status" class=${found ? "answer" : ""}>${found && html`
      ${found.there && html`<p><b>${!found.missing.length ? t("allInRequest") : !found.there.length ? t("noneInRequest")
        : t("someInRequest", { there: found.there.join(", "), missing: found.missing.join(", ") })}</b></p>`}
      ${found.hits.length ? html`<p class="quiet">${t("inMessages")}</p><ul class="runs">${found.hits.map((hit) => html`<${Hit} key=${hit.entry} hit=${hit} words=${words} lines=${found.lines} policy=${policy}
          run=${runs.find((run) => run.first <= hit.position && hit.position <= run.last)} conversation=${conversation} path=${path} branch=${branch} onChange=${onChange} />`)}</ul>`
        : html`<p class="quiet">${t("noHit")}</p>`}`}</div>`;
}

// Say why a message was in the request or not.
function explain({ verdict, reason, keep }, policy) {
  if (keep) return t("why_shortened");
  if (reason === "pinned") return t("why_pinned");
  if (verdict === "summarised") return t(reason === "brief" ? "why_brief" : "why_summary");
  if (verdict === "left_out") return t(reason === "excluded" ? "why_excluded" : "why_left_out", { policy });
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
  const line = lines.find((each) => each.entry === hit.entry);
  return html`<li class="hit"><span class=${"verdict " + (run?.verdict || "")}>${t("verdict_" + (run?.verdict || "later"))}</span> ${cutAround(hit.text, words, 160)}
    ${run && html`<p>${explain(run, policy)}${isGone && run.reason === "brief" ? " " + (line ? t("briefHasIt", { text: cut(line.text, 90) }) : t("briefLacksIt")) : ""}</p>`}
    <p class="ways"><a href=${linkTo(conversation, hit.entry, branch, hit.position)}>${t("whereItHappened")}</a>
      ${isOut ? html`<button onClick=${() => change(api.remove, "exclusions", "includedNow").catch(report)}>${t("include")}</button>`
        : isGone && html`<button disabled=${isPinned} onClick=${pin}>${isPinned ? t("isPinned") : t("sendAlways")}</button>
        ${run.verdict === "left_out" && !policy.includes("Memory(") && html`<button onClick=${() => choosePolicy(conversation, "Memory()")}>${t("useFromNow", { policy: "Memory()" })}</button>`}
        <a href=${`#/c/${encodeURIComponent(conversation)}/memory`}>${t("rememberIt")}</a>`}</p></li>`;
}
