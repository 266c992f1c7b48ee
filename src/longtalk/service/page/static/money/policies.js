// Policies in words, and which of them is chosen for the next messages of a conversation.
import { t } from "../strings.js";
import { notify } from "../dialogs.js";
import { app } from "../store.js";

const known = ["KeepAll", "KeepLast", "TokenBudget", "Summarize", "Economy", "Memory"];
const kindOf = (policy) => policy.slice(0, policy.indexOf("("));
const limitOf = (policy) => { const n = (policy.match(/\blimit=(\d[\d_]*)/) || [])[1]; return n ? Number(n.replace(/_/g, "")).toLocaleString() : ""; };
const numberOf = (policy) => { const n = (policy.match(/\((\d[\d_]*)/) || [])[1]?.replace(/_/g, ""); return n ? Number(n).toLocaleString() : ""; };

// Return what a policy does, or nothing for one that is not known here.
export function describe(policy) {
  const kind = kindOf(policy);
  if (!known.includes(kind)) return "";
  const limit = kind === "Memory" && limitOf(policy);
  return (limit ? t("does_MemoryLimit", { n: limit }) : t("does_" + kind, { n: numberOf(policy) })) + (policy.includes("profile=") ? t("does_MemoryProfile") : "");
}

// Return a plain name for a policy, or its code for one that is not known here.
export function namePolicy(policy) {
  const kind = kindOf(policy);
  if (!known.includes(kind)) return policy;
  const name = t("name_" + kind, { n: numberOf(policy) });
  if (kind !== "Memory") return name;
  const [limit, profile] = [limitOf(policy), policy.includes("profile=")];
  const whole = limit ? t("name_MemoryLimit", { n: limit }) : name;
  return profile ? t("withProfile", { name: whole }) : policy === "Memory()" || limit ? whole : whole + t("adjusted");
}

// Return a policy of memory with the profile beside its own settings; Memory with the profile for another policy.
export const addProfile = (policy) => (/^Memory\([^]*\)$/.test(policy) ? policy.replace(/(\(?)\)$/, (_, empty) => (empty ? "(" : ", ") + "profile=Profile())") : "Memory(profile=Profile())");

// Return the limit of a policy of memory; empty if it has none of its own.
export const readLimit = (policy) => ((kindOf(policy) === "Memory" && policy.match(/\blimit=(\d[\d_]*)/)?.[1]) || "").replace(/_/g, "");
// Return a policy of memory with this limit beside its own settings; Memory with the limit for another policy.
export function setLimit(policy, limit) {
  if (readLimit(policy)) return policy.replace(/\blimit=\d[\d_]*/, `limit=${limit}`);
  return /^Memory\([^]*\)$/.test(policy) ? policy.replace(/(\(?)\)$/, (_, empty) => `${empty ? "(" : ", "}limit=${limit})`) : `Memory(limit=${limit})`;
}

// Whether another policy of a list has the same name, so that only their code tells them apart.
export const isAmbiguous = (policy, list) => list.some((each) => each !== policy && namePolicy(each) === namePolicy(policy)) && namePolicy(policy) !== policy;

const read = (name, conversation) => sessionStorage.getItem(name + conversation) || "";
const keep = (name, conversation, value) => (value ? sessionStorage.setItem(name + conversation, value) : sessionStorage.removeItem(name + conversation));

// What is chosen for the next messages; empty where it stays as it is.
export const readChoice = (conversation) => ({ model: read("model:", conversation), policy: read("policy:", conversation) });
export function keepChoice(conversation, { model, policy }) {
  keep("model:", conversation, model);
  keep("policy:", conversation, policy);
}
// The choice as requests have it.
export const toRequest = ({ model, policy }) => ({ ...(model && { model }), ...(policy && { policy }) });

function apply(conversation, choice) {
  keepChoice(conversation, choice);
  app.set({ chosen: { conversation, ...choice } });
}

// Choose a policy for the next messages of a conversation, and a model with it if one is named ("" for its own), and go
// to the field where they are written.
export function choosePolicy(conversation, policy, model) {
  const before = readChoice(conversation);
  apply(conversation, { policy, model: model ?? before.model });
  const name = namePolicy(policy);
  const text = t(model ? "bothChosen" : "policyChosen", { name, model, does: describe(policy) });
  notify(text, { action: t("undo"), onAction: () => apply(conversation, before) });
  location.hash = "#/c/" + encodeURIComponent(conversation);
}

// The policies that a conversation had, latest first, so that there is a way back.
export const readEarlier = (conversation) => JSON.parse(localStorage.getItem("policies:" + conversation) || "[]");
export function keepEarlier(conversation, policy) {
  const earlier = readEarlier(conversation);
  if (policy && earlier[0] !== policy) localStorage.setItem("policies:" + conversation, JSON.stringify([policy, ...earlier.filter((each) => each !== policy)].slice(0, 3)));
}

// Whether the model gets at least a brief of all that such a policy leaves out, and quotes where they fit.
export const keepsAll = (policy) => ["KeepAll", "Memory"].includes(kindOf(policy));
