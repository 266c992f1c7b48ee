// Which words of a search a text has: by their stems, without the little words that every text has.
import { splitWords } from "../format.js";

const little = new Set(("a an and are as at be been but by did do does for from had has have he her his i if in is it its me my of on or our "
  + "she so that the their them they this to us was we were what when where which who will with you your").split(" "));
const ending = /(?:ings?|ed|es|s)$/;

function findStem(word) {
  const bare = word.replace(/['’]s?$/, "");
  const stem = bare.replace(ending, "");
  return stem.length >= 4 ? stem : bare.length > 4 ? bare.replace(/s$/, "") : bare;
}

// Return the words of a search that say something, or all of them if none does.
export function listWords(search) {
  const all = [...new Set(splitWords(search))];
  const telling = all.filter((word) => !little.has(word));
  return telling.length ? telling : all;
}

// Return those of the words that a text has. Words of scripts without spaces may stand anywhere in it.
export function findWords(words, text) {
  const stems = new Set(splitWords(text).map(findStem));
  return words.filter((word) => stems.has(findStem(word)) || (!/^[\p{Script=Latin}\p{N}'’-]+$/u.test(word) && text.toLowerCase().includes(word)));
}

// Return what has the most of the words, of the first of several: {item, has}; null if none has half of them.
export function findNearest(words, items, read) {
  let best = null;
  for (const item of items) {
    const has = findWords(words, read(item));
    if (2 * has.length >= words.length && has.length > (best?.has.length ?? 0)) best = { item, has };
  }
  return best;
}

function* listStrings(value) {
  if (typeof value === "string") yield value;
  else if (value && typeof value === "object") for (const each of Object.values(value)) yield* listStrings(each);
}

// Return the texts of a request: {text, isHead}. What stands in place of older messages is cut into its lines.
export function listTexts(body) {
  let parsed = body;
  try { parsed = JSON.parse(body); } catch { /* not a JSON object: one text */ }
  return [...listStrings(parsed)].flatMap((text) => (/<(brief|outline|summary)>/.test(text)
    ? text.split("\n").map((line) => ({ text: line, isHead: true })) : [{ text, isHead: false }]));
}
