// Markdown of a model as safe HTML: nothing runs, nothing is loaded from another origin, links open apart.
import { marked } from "./vendor/marked/lib/marked.esm.js";
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

// The HTML of the texts that were shown last.
const rendered = new Map();
function keep(text, made) {
  rendered.delete(text);
  rendered.set(text, made);
  if (rendered.size > 300) rendered.delete(rendered.keys().next().value);
  return made;
}

export function renderMarkdown(text) {
  return rendered.get(text) ?? keep(text, sanitize(marked.parse(text)));
}

// Render texts that are about to be shown, in short tasks.
export async function prepareMarkdown(texts) {
  const pace = makePacer();
  for (const text of texts) {
    renderMarkdown(text);
    await pace();
  }
}

const chunk = 4000; // characters of an open code block that are rendered again at most
const escape = (text) => text.replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;");
const drawCode = (text) => `<pre class="part"><code>${escape(text)}</code></pre>`;

// Markdown that grows at its end. A block is rendered for good when another one has begun after it; only the last block
// is rendered each time. A long code block is rendered in parts, so that the work does not grow with its length.
export class GrowingMarkdown {
  constructor() {
    Object.assign(this, { done: 0, blocks: [], last: "", fence: null, isCut: false });
  }

  // Return the HTML of the finished blocks, and of the last one.
  update(text) {
    if (!this.fence) this.openFence(text);
    if (this.fence && this.growCode(text)) return { blocks: this.blocks, last: this.last };
    const tail = text.slice(this.done);
    const tokens = marked.lexer(tail);
    let last = tokens.length - 1;
    while (last > 0 && tokens[last].type === "space") last -= 1;
    const finished = tokens.slice(0, Math.max(0, last));
    const size = finished.reduce((sum, each) => sum + each.raw.length, 0);
    // Tokens that don't spell the text, as after a carriage return, can't say where the next block begins.
    const isExact = tail.startsWith(finished.map((each) => each.raw).join(""));
    if (finished.length && isExact) {
      this.done += size;
      this.blocks = [...this.blocks, sanitize(marked.parser(finished))];
      tokens.splice(0, finished.length);
    }
    this.last = sanitize(marked.parser(tokens));
    return { blocks: this.blocks, last: this.last };
  }

  // Begin to render in parts if the last block is a long code block without an end.
  openFence(text) {
    if (text.length - this.done < chunk) return;
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

  // Keep the result for the message that the text becomes. Definitions of links count for all blocks, so they need another look.
  finish(text) {
    if (!this.isCut && !/^ {0,3}\[[^\]]+\]:/m.test(text)) keep(text, this.blocks.join("") + this.last);
  }
}
