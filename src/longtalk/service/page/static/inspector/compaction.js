// Compactions: what each has removed, what stands in its place, and where in the chat it happened; first what the next
// request has in place of older messages, where that is asked for.
import { html } from "../ui.js";
import { t } from "../strings.js";
import * as api from "../api.js";
import { report } from "../dialogs.js";
import { count, cut, day, nameReason, plain } from "../format.js";
import { linkTo } from "../list/list.js";
import { Loaded, Runs, readPlaces } from "./runs.js";
import { readHead } from "./words.js";

const isGone = (run) => run.verdict !== "sent" && run.verdict !== "held";
const isReplaced = (run) => isGone(run) && run.verdict !== "recalled";

// Open the chat at a position of a branch.
export async function goTo(conversation, path, branch, position) {
  const { entries } = await api.get(path + "/history", { branch, before: position + 1, limit: 1 });
  const entry = entries.find((each) => each.position === position) || entries[entries.length - 1];
  if (entry) location.hash = linkTo(conversation, entry.id, branch, entry.position);
}

export function Compaction({ conversation, path, branch, turn, turns, next, values }) {
  const talk = { conversation, path, branch };
  const read = async () => {
    const [{ epochs }, request] = await Promise.all([api.get(path + "/epochs", { branch }), next && next()]);
    const places = await readPlaces(path, branch, epochs.map((each) => each.start));
    return { request, epochs: epochs.map((epoch) => ({ epoch, entry: places.get(epoch.start) })).reverse() };
  };
  const numberOf = (id) => turns.findIndex((each) => each.turn === id) + 1;
  return html`<${Loaded} values=${values} read=${read} draw=${({ request, epochs }) => {
    // The one that the turn was sent with is the latest up to it.
    const asked = numberOf(turn) || Infinity;
    const found = epochs.map((each) => ({ ...each, number: numberOf(each.entry?.turn) }));
    const own = found.find(({ number }) => number && number <= asked);
    return html`${request && html`<${Next} talk=${talk} request=${request} />`}
      ${request && found.length > 0 && html`<h3>${t("shortenedSoFar")}</h3><p class="quiet">${t("shortenedThen")}</p>`}
      ${found.length ? found.map((each) => html`<${Epoch} key=${each.epoch.start} talk=${talk} ...${each} open=${!request && each === own} chip=${request || each !== own ? "" : t(each.number === asked ? "inThisTurn" : "stillInEffect")} />`)
        : !request && html`<p class="quiet">${t("nothingCompacted")}</p>`}`;
  }} />`;
}

// What the request that is not sent yet leaves out, and what it has instead, with all corrections.
function Next({ talk, request: { manifest: { runs }, requests: [{ body }] } }) {
  const [gone, head] = [runs.filter(isReplaced), readHead(body || "")];
  if (!gone.length) return html`<p class="quiet">${t("nextWhole")}</p>`;
  return html`<h3>${t("nextLeavesOut")}</h3><${Runs} runs=${gone} ...${talk} />
    ${head && html`<h3>${t("nextStands")}</h3><pre class="head">${head}</pre>`}`;
}

function Epoch({ talk, epoch, entry, number, open, chip }) {
  const [gone, kept] = [epoch.runs.filter(isGone), epoch.runs.filter((run) => !isGone(run))];
  const list = (runs) => html`<${Runs} runs=${runs} ...${talk} />`;
  return html`<details class="epoch" open=${open}><summary>${entry ? t("compactedAt", { number: number || "…", day: day(entry.at), text: cut(plain(entry.text), 50) }) : t("nextRequest")}${chip && html` <small class="chip">${chip}</small>`}</summary>
    <p class="quiet">${t("compactedBecause", { reason: nameReason(epoch.reason), tokens: count(epoch.tokens) })}
      <button class="small" onClick=${() => goTo(talk.conversation, talk.path, talk.branch, epoch.start).catch(report)}>${t("whereItHappened")}</button></p>
    ${gone.length > 0 && html`<h3>${t("wasRemoved")}</h3>${list(gone)}`}
    ${epoch.summary && html`<h3>${t("standsInPlace")}</h3><pre>${epoch.summary}</pre>`}
    ${kept.length > 0 && html`<h3>${t("wasKept")}</h3>${list(kept)}`}</details>`;
}
