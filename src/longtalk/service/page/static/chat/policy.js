// The policy of the next messages: chosen by its name, or written as code.
import { html, useRef, useState } from "../ui.js";
import { t } from "../strings.js";
import { describe, isAmbiguous, namePolicy, readEarlier, readLimit, setLimit } from "../money/policies.js";

const common = ["KeepAll()", "Memory()", "Summarize(8_000)", "Economy()", "KeepLast(10)"];

// `current` is the policy that the conversation has now, `chosen` the one for the next messages if it is another.
// `check` rejects a policy that the service refuses.
export function PolicyPicker({ conversation, current, chosen, check, onChoose }) {
  const [open, setOpen] = useState(false);
  const [code, setCode] = useState("");
  const [limit, setNumber] = useState("");
  const [refusal, setRefusal] = useState("");
  const button = useRef(null);
  const policy = chosen || current;
  const earlier = open ? readEarlier(conversation) : [];
  const listed = [...new Set([current, chosen, ...common, ...earlier])].filter(Boolean);
  const toggle = () => { setCode(policy || ""); setNumber(readLimit(policy || "")); setRefusal(""); setOpen(!open); };
  const choose = (each) => { onChoose(each.trim()); setOpen(false); document.getElementById("message").focus(); };
  const tryOut = (each) => check(each.trim()).then(() => choose(each), (problem) => setRefusal(problem.message));
  const chooseCode = () => tryOut(code);
  const chooseLimit = () => limit && tryOut(setLimit(policy || "", limit));
  const onKey = (event) => {
    if (event.key === "Escape" && open) { event.stopPropagation(); setOpen(false); button.current.focus(); }
  };
  const onEnter = (go) => (event) => { if (event.key === "Enter") { event.preventDefault(); go(); } };
  const row = (each) => html`<li key=${each}><button type="button" aria-pressed=${each === policy} title=${each} onClick=${() => choose(each)}>
    <span><b>${namePolicy(each)}</b>${each === policy ? html` <small class="chip">${t("yours")}</small>` : earlier.includes(each) ? html` <small class="chip">${t("earlier")}</small>` : ""}${each === "Memory()" && current === "KeepAll()" ? html` <small class="chip">${t("recommendedLong")}</small>` : ""}
    ${isAmbiguous(each, listed) && html` <code>${each}</code>`}</span><small>${describe(each)}</small></button></li>`;
  return html`<div class="pick" onKeyDown=${onKey} onFocusOut=${(e) => { if (e.relatedTarget && !e.currentTarget.contains(e.relatedTarget)) setOpen(false); }}>
    <button type="button" ref=${button} class="choose" aria-haspopup="dialog" aria-expanded=${open} title=${policy || t("policyField")} onClick=${toggle}><span class="word">${t("policy")} </span><span>${policy ? namePolicy(policy) : ""}</span><i aria-hidden="true">▾</i></button>
    ${open && html`<div class="policies-of" role="dialog" aria-label=${t("policy")} tabindex="-1"><p class="quiet">${t("policyField")}</p><ul>${listed.map(row)}</ul>
      <div class="row"><label for="policy-limit">${t("memoryLimit")}</label><input id="policy-limit" class="grow" type="number" min="1" step="1" placeholder="12000" value=${limit} onInput=${(e) => setNumber(e.target.value)} onKeyDown=${onEnter(chooseLimit)} />
        <button type="button" onClick=${chooseLimit}>${t("useMemory")}</button></div>
      <div class="row"><label for="policy-code">${t("policyCode")}</label><input id="policy-code" class="grow" spellcheck=${false} autocomplete="off" placeholder="Memory(limit=4_000)" value=${code} onInput=${(e) => setCode(e.target.value)} onKeyDown=${onEnter(chooseCode)} />
        <button type="button" onClick=${chooseCode}>${t("usePolicy")}</button></div>${refusal && html`<p class="problem" role="alert">${refusal}</p>`}</div>`}</div>`;
}
