// Markdown of a model as safe HTML: nothing runs, nothing is loaded from another origin, links open apart.
import { Lexer, marked } from "./vendor/marked/lib/marked.esm.js";
import DOMPurify from "./vendor/dompurify/dist/purify.es.mjs";
import { makePacer } from "./pace.js";

DOMPurify.addHook("afterSanitizeAttributes", (node) => {
  if (node.tagName === "A") {
    if (!/^(https?:|mailto:)/i.test(node.getAttribute("href") || "")) node.removeAttribute("href");
    node.setAttribute("target", "_blank");
    node.setAttribute("rel", "noopener noreferrer nofollow");
  }
  if (node.tagName === "IMG" && !/^data:image\/(png|jpeg|gif|webp);/i.test(node.getAttribute("src") || "")) {
    const text = document.createElement("span");
    text.textContent = node.getAttribute("alt") || "";
    node.replaceWith(text);
  }
});

// HTML is shown as text, so that the sanitizer never has to parse what a model wrote as HTML.
marked.use({ gfm: true, breaks: true,
  renderer: { html: ({ text }) => text.replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;").replace(/"/g, "&quot;") } });

const tags = ("a b blockquote br code del em h1 h2 h3 h4 h5 h6 hr i img li ol p pre s strong sub sup table tbody td th thead tr ul").split(" ");
const sanitize = (dirty) => DOMPurify.sanitize(dirty, {
  ALLOWED_TAGS: tags, ALLOWED_ATTR: ["href", "src", "alt", "title", "align", "start"], ALLOW_DATA_ATTR: false,
});

const chunk = 4000; // characters of a block that grows which are rendered again
const most = 2 * chunk; // characters that are read at once; longer texts are rendered in parts

// The HTML of the texts that were shown last, each as a list of blocks.
const rendered = new Map();
function keep(text, blocks) {
  rendered.delete(text);
  rendered.set(text, blocks);
  if (rendered.size > 300) rendered.delete(rendered.keys().next().value);
  return blocks;
}

// Yield while a text is rendered part by part; return its blocks.
function* renderInParts(text) {
  if (text.length <= most) return [sanitize(marked.parse(text))];
  const growing = new GrowingMarkdown(text);
  while (growing.update(text).isBehind) yield;
  return [...growing.blocks, growing.last];
}

// Return the HTML of a text as a list of blocks: one, unless it is long.
export function renderBlocks(text) {
  if (rendered.has(text)) return rendered.get(text);
  const parts = renderInParts(text);
  for (;;) {
    const { value, done } = parts.next();
    if (done) return keep(text, value);
  }
}

export const renderMarkdown = (text) => renderBlocks(text).join("");

// Render texts that are about to be shown, in short tasks.
export async function prepareMarkdown(texts) {
  const pace = makePacer();
  for (const text of texts.filter((each) => !rendered.has(each))) {
    const parts = renderInParts(text);
    for (;;) {
      const { value, done } = parts.next();
      await pace();
      if (done) { keep(text, value); break; }
    }
  }
}

const escape = (text) => text.replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;");
const drawCode = (text) => `<pre class="part"><code>${escape(text)}</code></pre>`;
const definitions = /^ {0,3}\[[^\]]+\]:.*$/gm; // of links

// Markdown that grows at its end. A block is rendered for good when another one has begun after it; only the last block
// is rendered each time. Long lists, tables and code blocks are cut into parts, so that the work does not grow with them.
export class GrowingMarkdown {
  // Definitions of links count for the blocks before them too, if the whole text is known.
  constructor(whole = "") {
    const links = whole.match(definitions) || [];
    Object.assign(this, { done: 0, blocks: [], last: "", fence: null, isCut: false, size: most, head: "", count: 0, links: links.join("\n") });
  }

  // Return the HTML of the finished blocks and of the last one, and whether there is more of the text to read.
  update(text) {
    const piece = text.slice(0, this.done + this.size);
    const { done } = this;
    this.read(piece);
    const isBehind = piece.length < text.length;
    // A block that can't be cut is read as a whole.
    this.size = isBehind && this.done === done ? 2 * this.size : most;
    return { blocks: this.blocks, last: this.last, isBehind };
  }

  read(text) {
    if (!this.fence) this.openFence(text);
    if (this.fence && this.growCode(text)) return;
    const tail = this.head + text.slice(this.done);
    const tokens = this.lex(tail);
    if (this.count && tokens[0]?.type === "list") tokens[0].start = this.count;
    let last = tokens.length - 1;
    while (last > 0 && tokens[last].type === "space") last -= 1;
    const finished = tokens.slice(0, Math.max(0, last));
    const raw = finished.map((each) => each.raw).join("");
    // Tokens that don't spell the text, as after a carriage return, can't say where the next block begins.
    if (finished.length && tail.startsWith(raw)) {
      this.add(finished);
      this.done += raw.length - this.head.length;
      Object.assign(this, { head: "", count: 0 });
      tokens.splice(0, finished.length);
    }
    if (tokens.length && tokens[0].raw.length > chunk && (this.head + text.slice(this.done)).startsWith(tokens[0].raw)) tokens[0] = this.cut(tokens[0]);
    this.last = this.draw(tokens);
  }

  lex(text) {
    const lexer = new Lexer();
    if (this.links) lexer.lex(this.links);
    lexer.tokens.length = 0;
    return lexer.lex(text);
  }

  draw(tokens) {
    return sanitize(marked.parser(tokens));
  }

  add(tokens) {
    const made = this.draw(tokens);
    if (made) this.blocks = [...this.blocks, made];
  }

  // Render the finished items or rows of a block for good. Return what remains of it.
  cut(token) {
    if (token.type === "list" && token.items.length > 1) {
      const items = token.items.slice(0, -1);
      const raw = items.map((each) => each.raw).join("");
      if (!token.raw.startsWith(raw)) return token;
      this.add([{ ...token, items }]);
      this.count = token.ordered ? Number(token.start || 1) + items.length : 0;
      this.done += raw.length;
      this.isCut = true;
      return { ...token, start: this.count || token.start, items: token.items.slice(-1) };
    }
    if (token.type !== "table" || token.rows.length < 2) return token;
    const lines = token.raw.replace(/\n+$/, "").split("\n");
    if (lines.length !== token.rows.length + 2) return token;
    this.add([{ ...token, rows: token.rows.slice(0, -1) }]);
    this.done += lines.slice(0, -1).join("\n").length + 1 - this.head.length;
    this.head = `${lines[0]}\n${lines[1]}\n`;
    this.isCut = true;
    return { ...token, rows: token.rows.slice(-1) };
  }

  // Begin to render in parts if the last block is a long code block without an end.
  openFence(text) {
    if (this.head || text.length - this.done < chunk) return;
    const tail = text.slice(this.done);
    const begin = /^\s*? {0,3}(`{3,}|~{3,})[^\n`]*\n/.exec(tail);
    if (!begin) return;
    const end = new RegExp(`^ {0,3}${begin[1][0]}{${begin[1].length},}[ \\t]*$`, "m");
    if (end.test(tail.slice(begin[0].length))) return;
    Object.assign(this, { fence: end, isCut: true, done: this.done + begin[0].length });
  }

  // Render what has come of a code block. Return false when it has ended.
  growCode(text) {
    const rest = text.slice(this.done);
    const end = this.fence.exec(rest);
    // The last line may still become the end.
    const lines = rest.lastIndexOf("\n") + 1;
    const size = end ? end.index : lines || (rest.length > 2 * chunk ? rest.length : 0);
    if (end || size >= chunk) {
      if (size) this.blocks = [...this.blocks, drawCode(rest.slice(0, size).replace(/\n$/, ""))];
      this.done += end ? end.index + end[0].length : size;
      this.last = end ? "" : drawCode(rest.slice(size));
    } else this.last = drawCode(rest);
    // An end at the end of the text may still grow into something else.
    if (end) this.fence = null;
    return !end;
  }

  // Keep the result for the message that the text becomes, if it is as that would be rendered.
  finish(text) {
    if (!this.isCut && text.length <= most && !text.match(definitions)) keep(text, [this.blocks.join("") + this.last]);
  }
}
