// What all conversations know about the user, beside the brief of one; and whether this conversation stays out of it.
import { html, useEffect, useState } from "../ui.js";
import { t } from "../strings.js";
import * as api from "../api.js";
import { notify } from "../dialogs.js";
import { cut } from "../format.js";
import { linkTo } from "../list/list.js";
import { announce } from "../chat/talk.js";
import { app } from "../store.js";
import { Add, Line, UsePolicy } from "./lines.js";
import { addProfile } from "../money/policies.js";

export function Profile({ conversation, policy }) {
  const [found, setFound] = useState(null);
  const [problem, setProblem] = useState("");
  const load = async () => {
    const [profile, privacy] = await Promise.all([api.get("/profile"), api.get(api.one(conversation) + "/privacy")]);
    const ids = new Set(profile.lines.flatMap((line) => line.sources.map((source) => source.conversation)));
    const infos = await Promise.all([...ids].slice(0, 50).map((id) => app.get().conversations.find((each) => each.id === id) || api.get(api.one(id)).catch(() => null)));
    setFound({ ...profile, ...privacy, titles: new Map(infos.filter(Boolean).map((each) => [each.id, each.title])) });
  };
  useEffect(() => {
    setFound(null);
    load().catch((error) => setProblem(error.message));
  }, [conversation]);
  const change = async (call) => {
    try {
      await call();
      setProblem("");
      await load();
      announce(conversation);
      notify(t("briefSaved"));
      return true;
    } catch (error) {
      setProblem(error.message);
      return false;
    }
  };
  if (!found) return problem ? html`<p class="problem" role="alert">${problem}</p>` : null;
  const isSent = policy ? policy.includes("profile=") : found.kept;
  const setPrivate = (event) => change(() => api.put(api.one(conversation) + "/privacy", undefined, { private: event.target.checked }));
  return html`<section aria-label=${t("profileTitle")}><h2>${t("profileTitle")}</h2>
    ${problem && html`<p class="problem" role="alert">${problem}</p>`}
    ${found.private ? html`<p class="card-note">${t("profilePrivate")}</p>`
      : isSent ? html`<p class="quiet">${t("profileHelp")}</p>` : html`<p class="card-note">${t("profileNotSent")} <${UsePolicy} conversation=${conversation} policy=${addProfile(policy)} /></p>`}
    <ul class="lines">${found.lines.map((line) => html`<${Line} key=${line.id} line=${line} change=${change} path="/profile"
      source=${html`<${Sources} line=${line} titles=${found.titles} here=${conversation} />`} />`)}</ul>
    <${Add} fields=${found.fields} first="preferences" change=${change} path="/profile" fieldLabel=${t("profileField")} label=${t("profileText")} action=${t("addToProfile")} />
    <label class="row"><input type="checkbox" checked=${found.private} onChange=${setPrivate} /> ${t("private")}</label>
    <p class="quiet">${t("privateHelp")}</p></section>`;
}

function Sources({ line, titles, here }) {
  if (!line.sources.length) return html`· ${t("byHand")}`;
  const name = (id) => (id === here ? t("thisConversation") : cut(titles.get(id) || t("untitled"), 40));
  return html`${line.sources.slice(0, 3).map((source) => html`· <a key=${source.entry} href=${linkTo(source.conversation, source.entry, source.branch)}
    aria-label=${t("sourceIn", { text: cut(line.text, 60), title: name(source.conversation) })}>${name(source.conversation)}</a> `)}${line.edited ? `· ${t("edited")}` : ""}`;
}
