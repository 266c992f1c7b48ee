// Compactions: what each has removed, what stands in its place, and where in the chat it happened.
import { html } from "../ui.js";
import { t } from "../strings.js";
import * as api from "../api.js";
import { report } from "../dialogs.js";
import { count, cut, day, nameReason, plain } from "../format.js";
import { linkTo } from "../list/list.js";
import { Loaded, Runs, readPlaces } from "./runs.js";

const isGone = (run) => run.verdict !== "sent" && run.verdict !== "held";

// Open the chat at a position of a branch.
export async function goTo(conversation, path, branch, position) {
  const { entries } = await api.get(path + "/history", { branch, before: position + 1, limit: 1 });
  const entry = entries.find((each) => each.position === position) || entries[entries.length - 1];
  if (entry) location.hash = linkTo(conversation, entry.id, branch, entry.position);
}

export function Compaction({ conversation, path, branch }) {
  const talk = { conversation, path, branch };
  const read = async () => {
    const { epochs } = await api.get(path + "/epochs", { branch });
    return { epochs, places: await readPlaces(path, branch, epochs.map((each) => each.start)) };
  };
  return html`<${Loaded} values=${[path, branch]} read=${read} draw=${({ epochs, places }) => epochs.length
    ? [...epochs].reverse().map((epoch, i) => html`<${Epoch} key=${epoch.start} talk=${talk} epoch=${epoch} entry=${places.get(epoch.start)} open=${i === 0} />`)
    : html`<p class="quiet">${t("nothingCompacted")}</p>`} />`;
}

function Epoch({ talk, epoch, entry, open }) {
  const [gone, kept] = [epoch.runs.filter(isGone), epoch.runs.filter((run) => !isGone(run))];
  const list = (runs) => html`<${Runs} runs=${runs} ...${talk} />`;
  return html`<details class="epoch" open=${open}><summary>${entry ? t("compactedAt", { day: day(entry.at), text: cut(plain(entry.text), 50) }) : t("nextRequest")}</summary>
    <p class="quiet">${t("compactedBecause", { reason: nameReason(epoch.reason), tokens: count(epoch.tokens) })}
      <button class="small" onClick=${() => goTo(talk.conversation, talk.path, talk.branch, epoch.start).catch(report)}>${t("whereItHappened")}</button></p>
    ${gone.length > 0 && html`<h3>${t("wasRemoved")}</h3>${list(gone)}`}
    ${epoch.summary && html`<h3>${t("standsInPlace")}</h3><pre>${epoch.summary}</pre>`}
    ${kept.length > 0 && html`<h3>${t("wasKept")}</h3>${list(kept)}`}</details>`;
}
