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
// Return how many tokens of a request are history, where its policy counts the history alone.
export const countHistory = (total, { limit, history_limit: own }) => Math.max(0, total - (limit - own));
// Say in the page's own words why something was sent, left out or replaced; other reasons come in words already.
export const nameReason = (reason) => strings["reason_" + reason] ?? reason;
// Return the words of a text, in lower case.
export const splitWords = (text) => text.toLowerCase().split(/[^\p{L}\p{M}\p{N}'’-]+/u).filter(Boolean);
// Return Markdown as plain text for a preview: without the signs for bold, code and headings.
export const plain = (text) => text.replace(/\*\*([^*]+)\*\*/g, "$1").replace(/`+([^`]*)`+/g, "$1").replace(/^#+ /gm, "");
// Say in the page's own words how much of older messages may be quoted; other reasons come in words already.
export function nameRecall(why) {
  const [, need, limit, , credit, , room] = /^(\d+%) likely to be needed: up to ([\d,]+) of [\d,]+ tokens(, cut to ([\d,]+), because recall.*?cost)?(, cut to ([\d,]+), for which.*)?$/.exec(why) ?? [];
  if (!need) return t("recallWhy", { why });
  return [t("recallNeed", { need, limit }), credit && t("recallSpent", { credit }), room && t("recallRoom", { room })].filter(Boolean).join(" ");
}
// Write the name of a field of the memory, such as open_questions, as words.
export const nameField = (name) => name.charAt(0).toUpperCase() + name.slice(1).replaceAll("_", " ");
export const percent = (part, all) => (all ? Math.round((100 * part) / all) : 0) + " %";
const formats = {
  day: new Intl.DateTimeFormat(undefined, { year: "numeric", month: "short", day: "numeric" }),
  monthDay: new Intl.DateTimeFormat(undefined, { month: "short", day: "numeric" }),
  longDay: new Intl.DateTimeFormat(undefined, { weekday: "long", year: "numeric", month: "long", day: "numeric" }),
  time: new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "short" }),
  clock: new Intl.DateTimeFormat(undefined, { timeStyle: "short" }),
};
export const day = (at) => formats.day.format(at);
export const monthDay = (at) => formats.monthDay.format(at);
export const days = (from, to) => formats.day.formatRange(from, to);
export const longDay = (at) => formats.longDay.format(at);
export const time = (at) => formats.time.format(at);
export const clock = (at) => formats.clock.format(at);
// Return the beginning of a text, which ends with a whole word.
export function cut(text, size = 160) {
  if (text.length <= size) return text;
  const end = text.lastIndexOf(" ", size);
  return text.slice(0, end > size / 2 ? end : size).replace(/[\s,;:–—-]+$/, "") + "…";
}
