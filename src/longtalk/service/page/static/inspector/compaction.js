// Compactions: what each has removed, what stands in its place, and where in the chat it happened.
import { html } from "../ui.js";
import { t } from "../strings.js";
import * as api from "../api.js";
import { report } from "../dialogs.js";
import { count, nameReason } from "../format.js";
import { linkTo } from "../list/list.js";
import { Loaded, Run } from "./runs.js";

const isGone = (run) => run.verdict !== "sent" && run.verdict !== "held";

// Open the chat at a position of a branch.
export async function goTo(conversation, path, branch, position) {
  const { entries } = await api.get(path + "/history", { branch, before: position + 1, limit: 1 });
  const entry = entries.find((each) => each.position === position) || entries[entries.length - 1];
  if (entry) location.hash = linkTo(conversation, entry.id, branch, entry.position);
}

export function Compaction({ conversation, path, branch }) {
  const talk = { conversation, path, branch };
  return html`<${Loaded} values=${[path, branch]} read=${() => api.get(path + "/epochs", { branch })} draw=${({ epochs }) => epochs.length
    ? [...epochs].reverse().map((epoch, i) => html`<${Epoch} key=${epoch.start} talk=${talk} epoch=${epoch} open=${i === 0} />`)
    : html`<p class="quiet">${t("nothingCompacted")}</p>`} />`;
}

function Epoch({ talk, epoch, open }) {
  const [gone, kept] = [epoch.runs.filter(isGone), epoch.runs.filter((run) => !isGone(run))];
  const list = (runs) => html`<ul class="runs">${runs.map((run) => html`<${Run} run=${run} ...${talk} key=${run.first} />`)}</ul>`;
  return html`<details class="epoch" open=${open}><summary>${t("compactedAt", { start: epoch.start })}</summary>
    <p class="quiet">${t("compactedBecause", { reason: nameReason(epoch.reason), tokens: count(epoch.tokens) })}
      <button class="small" onClick=${() => goTo(talk.conversation, talk.path, talk.branch, epoch.start).catch(report)}>${t("whereItHappened")}</button></p>
    ${gone.length > 0 && html`<h3>${t("wasRemoved")}</h3>${list(gone)}`}
    ${epoch.summary && html`<h3>${t("standsInPlace")}</h3><pre>${epoch.summary}</pre>`}
    ${kept.length > 0 && html`<h3>${t("wasKept")}</h3>${list(kept)}`}</details>`;
}
