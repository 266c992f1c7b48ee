// What the model saw of each part of the conversation in one turn, and the exact request.
import { html, useEffect, useState } from "../ui.js";
import { t } from "../strings.js";
import * as api from "../api.js";

const parts = ["history", "brief", "outline", "recall", "left_out"];

export function Inspector({ conversation, branch, turn }) {
  const [manifest, setManifest] = useState(null);
  const [requests, setRequests] = useState([]);
  const [problem, setProblem] = useState("");
  useEffect(() => {
    if (!turn) return;
    const path = `${api.one(conversation)}/turns/${encodeURIComponent(turn)}`;
    setProblem("");
    api.get(path + "/manifest", { branch }).then(setManifest, (error) => setProblem(error.message));
    api.get(path + "/requests", { branch }).then((found) => setRequests(found.requests), () => {});
  }, [conversation, branch, turn]);
  if (!turn) return html`<p class="quiet">${t("noTurn")}</p>`;
  if (problem) return html`<p class="problem" role="alert">${problem}</p>`;
  if (!manifest) return null;
  const { metrics, runs, window: most } = manifest;
  return html`
    ${metrics && html`<dl class="figures"><dt>${t("total")}</dt><dd>${metrics.total.toLocaleString()}${most ? t("ofWindow", { window: most.toLocaleString() }) : ""}</dd>
      ${parts.filter((part) => metrics[part]).map((part) => html`<dt>${t("part_" + part)}</dt><dd>${metrics[part].toLocaleString()}</dd>`)}</dl>`}
    <table><thead><tr><th>${t("positions")}</th><th>${t("verdict")}</th><th>${t("reason")}</th><th>${t("tokens")}</th></tr></thead>
      <tbody>${runs.map((run) => html`<tr><td>${run.first === run.last ? run.first : `${run.first}–${run.last}`}</td>
        <td>${t("verdict_" + run.verdict)}</td><td>${run.reason}</td><td>${run.tokens || 0}</td></tr>`)}</tbody></table>
    <h2>${t("requests")}</h2>
    ${requests.map((each) => html`<details open><summary>${each.model}</summary><pre>${each.problem || format(each.body)}</pre></details>`)}`;
}

function format(body) {
  try {
    return JSON.stringify(JSON.parse(body), null, 2);
  } catch {
    return body;
  }
}
