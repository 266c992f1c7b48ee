// Numbers, amounts and times as the visitor's language writes them.
import { strings, t } from "./strings.js";

export const count = (value) => Math.round(value).toLocaleString();
// An unknown amount is a dash, never a zero. Small amounts keep two digits that say something.
export function dollars(value) {
  if (value === null || value === undefined) return "–";
  const size = Math.abs(value);
  const digits = size === 0 || size >= 1 ? 2 : size >= 0.01 ? 4 : Math.min(8, 1 - Math.floor(Math.log10(size)));
  return (value < 0 ? "−$" : "$") + size.toFixed(digits);
}
// Say in the page's own words why something was sent, left out or replaced; other reasons come in words already.
export const nameReason = (reason) => strings["reason_" + reason] ?? reason;
// Return the words of a text, in lower case.
export const splitWords = (text) => text.toLowerCase().split(/[\s.,;:!?"“”()*`|<>[\]]+/).filter(Boolean);
// Return Markdown as plain text for a preview: without the signs for bold, code and headings.
export const plain = (text) => text.replace(/\*\*([^*]+)\*\*/g, "$1").replace(/`+([^`]*)`+/g, "$1").replace(/^#+ /gm, "");
// Say in the page's own words how much of older messages may be quoted; other reasons come in words already.
export function nameRecall(why) {
  const [, need, limit, , credit, , room] = /^(\d+%) likely to be needed: up to ([\d,]+) of [\d,]+ tokens(, cut to ([\d,]+), because recall.*?cost)?(, cut to ([\d,]+), for which.*)?$/.exec(why) ?? [];
  if (!need) return t("recallWhy", { why });
  return [t("recallNeed", { need, limit }), credit && t("recallSpent", { credit }), room && t("recallRoom", { room })].filter(Boolean).join(" ");
}
// Write the name of a field of the memory, such as open_questions, as words.
export const nameField = (name) => name.replaceAll("_", " ");
export const percent = (part, all) => (all ? Math.round((100 * part) / all) : 0) + " %";
export const day = (at) => new Date(at).toLocaleDateString(undefined, { year: "numeric", month: "short", day: "numeric" });
export const time = (at) => new Date(at).toLocaleString(undefined, { dateStyle: "medium", timeStyle: "short" });
export const cut = (text, size = 160) => (text.length > size ? text.slice(0, size).trimEnd() + "…" : text);
