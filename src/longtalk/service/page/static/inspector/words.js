// Which words of a search a text has: by their stems, without the little words that every text has.
import { splitWords } from "../format.js";

const little = new Set(("a about also am an and any are as at be been but by can could did do does for from had has have he her him his how i if in is "
  + "it its just many may me more much my no not now of on or our really say said she should so some tell than that the their them then there these they "
  + "this those to too us very was we were what when where which who why will with would you your").split(" "));
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

// Return what has the most of the words, of the first of several: {item, has}; null if none has half of them, or `least`.
export function findNearest(words, items, read, least = words.length / 2) {
  let best = null;
  for (const item of items) {
    const has = findWords(words, read(item));
    if (has.length >= least && has.length > (best?.has.length ?? 0)) best = { item, has };
  }
  return best;
}

// Sort what a search has found so that what has the rarest of the words comes first.
export function sortByRarity(words, items, read) {
  const has = new Map(items.map((item) => [item, findWords(words, read(item))]));
  const counts = new Map(words.map((word) => [word, items.filter((item) => has.get(item).includes(word)).length]));
  const weigh = (item) => has.get(item).reduce((sum, word) => sum + 1 / counts.get(word), 0);
  return [...items].sort((a, b) => weigh(b) - weigh(a));
}

const sections = { brief: "Head", outline: "Head", earlier_summary: "Head", earlier_conversation: "Head", memory: "Head", recalled: "Quote" };
const card = /<\s*MEMORY\\?_CARD\s*>/i;

// Return the parts of a text of a request: {text, kind, whole}. What Longtalk adds is cut into its lines.
function* cutText(text, kind) {
  if (!/<(brief|earlier_conversation|memory|recalled)>/.test(text)) {
    const at = kind === "Message" ? text.search(card) : -1;
    yield { text: at < 0 ? text : text.slice(0, at), kind, whole: text };
    if (at >= 0) yield { text: text.slice(at).replace(/<[^>]*>/g, ""), kind: "Card", whole: text };
    return;
  }
  const open = [];
  for (const line of text.split("\n")) {
    const [, end, tag] = /^\s*<(\/?)(\w+)>\s*$/.exec(line) || [];
    if (end && open.at(-1) === tag) open.pop();
    else if (tag && !end) open.push(tag);
    else if (line.trim()) yield { text: line, kind: open.map((each) => sections[each]).filter(Boolean).at(-1) || "Message", whole: line };
  }
}

function* listStrings(value, kind) {
  if (typeof value === "string") yield* cutText(value, kind);
  else if (value && typeof value === "object") {
    const own = /^(system|developer)$/.test(value.role) ? "System" : kind;
    for (const [name, each] of Object.entries(value)) {
      if (!["role", "type", "model", "id"].includes(name)) yield* listStrings(each, ["system", "instructions", "tools", "systemInstruction"].includes(name) ? "System" : own);
    }
  }
}

// Return the texts of a request: {text, kind, whole}, with the kind Message, Card, Quote, Head (in place of older messages) or System.
export function listTexts(body) {
  let parsed = body;
  try { parsed = JSON.parse(body); } catch { /* not a JSON object: one text */ }
  return [...listStrings(parsed, "Message")];
}

// Return the text that a request has in place of older messages; empty for none.
export const readHead = (body) => {
  const found = [];
  const look = (value) => {
    if (typeof value === "string") {
      const head = /<earlier_conversation>\s*([^]*?)\s*<\/earlier_conversation>/.exec(value);
      if (head) found.push(head[1]);
    } else if (value && typeof value === "object") Object.values(value).forEach(look);
  };
  try { look(JSON.parse(body)); } catch { /* not JSON: nothing is known of it */ }
  return found.join("\n\n");
};
