// The answer as it comes. Only this part of the page is drawn with each piece of it.
import { html, useEffect, useLayoutEffect, useRef, useState } from "../ui.js";
import { t } from "../strings.js";
import { useStore } from "../store.js";
import { GrowingMarkdown } from "../markdown.js";
import { Block, Folded } from "./entry.js";

export function Live({ talk }) {
  const { text, reasoning, calls } = useStore(talk.stream);
  const growing = useRef(null);
  const shown = useRef(null);
  const spoken = useRef(0);
  // Another stream has begun: the last one was cut off.
  if (!growing.current || text.length < growing.current.done) [growing.current, spoken.current] = [new GrowingMarkdown(), 0];
  const begun = performance.now();
  const { blocks, last, isBehind } = growing.current.update(text);
  const [, drawMore] = useState(0);
  useEffect(() => { // much has come at once: the rest in the next frames
    const frame = isBehind && requestAnimationFrame(() => drawMore((count) => count + 1));
    return () => cancelAnimationFrame(frame);
  });
  useLayoutEffect(() => { talk.drawing = performance.now() - begun; });
  useEffect(() => {
    for (; spoken.current < blocks.length; spoken.current += 1) talk.speak(shown.current.children[spoken.current].textContent);
  }, [blocks.length]);
  useEffect(() => () => {
    const { text: all } = talk.stream.get();
    if (!growing.current.update(all).isBehind) growing.current.finish(all);
    if (shown.current) talk.speak(shown.current.lastElementChild.textContent);
  }, []);
  return html`<article class="entry assistant live" aria-label=${t("answer")} aria-busy="true">
    <${Folded} reasoning=${reasoning} calls=${calls} />
    ${!text && html`<span class="dots" aria-hidden="true">···</span>`}
    <div class=${"markdown" + (blocks.length > 3 ? " long" : "")} ref=${shown}>${blocks.map((made, i) => html`<${Block} key=${i} made=${made} />`)}<${Block} key="last" made=${last} /></div></article>`;
}

// What a screen reader reads of it: each part once, when it is finished.
export function Spoken({ talk }) {
  const { parts } = useStore(talk.spoken);
  return html`<div class="sr" role="log" aria-live="polite" aria-label=${t("answer")}>${parts.map(({ text, number }) => html`<p key=${number}>${text}</p>`)}</div>`;
}
