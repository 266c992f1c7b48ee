// Markdown of a model as safe HTML: nothing runs, nothing is loaded from another origin, links open apart.
import { marked } from "./vendor/marked/lib/marked.esm.js";
import DOMPurify from "./vendor/dompurify/dist/purify.es.mjs";

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
marked.use({ renderer: { html: ({ text }) => text.replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;").replace(/"/g, "&quot;") } });

const tags = ("a b blockquote br code del em h1 h2 h3 h4 h5 h6 hr i img li ol p pre s strong sub sup table tbody td th thead tr ul").split(" ");

export function renderMarkdown(text) {
  return DOMPurify.sanitize(marked.parse(text, { gfm: true, breaks: true }), {
    ALLOWED_TAGS: tags, ALLOWED_ATTR: ["href", "src", "alt", "title", "align", "start"], ALLOW_DATA_ATTR: false,
  });
}
