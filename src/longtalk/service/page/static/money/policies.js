// What policies do, in words, and whether they lose what they leave out.
import { t } from "../strings.js";
import { notify } from "../dialogs.js";
import { app } from "../store.js";

const known = ["KeepAll", "KeepLast", "TokenBudget", "Summarize", "Economy", "Memory"];
const nameOf = (policy) => policy.slice(0, policy.indexOf("("));

// Return what a policy does, or nothing for one that is not known here.
export function describe(policy) {
  const n = (policy.match(/\((\d[\d_]*)/) || [])[1]?.replace(/_/g, "") || "";
  return known.includes(nameOf(policy)) ? t("does_" + nameOf(policy), { n: n && Number(n).toLocaleString() }) : "";
}

// Choose a policy for the next messages of a conversation, and go to the field where they are written.
export function choosePolicy(conversation, policy) {
  sessionStorage.setItem("policy:" + conversation, policy);
  app.set({ chosen: { conversation, policy } });
  notify(t("policyChosen", { policy }));
  location.hash = "#/c/" + encodeURIComponent(conversation);
}

// All that such a policy leaves out stays within reach of the model.
export const keepsAll = (policy) => ["KeepAll", "Memory"].includes(nameOf(policy));
