// Charts of bars: drawn as SVG, with a title on each bar. The numbers are in a table too.
import { html } from "../ui.js";
import { t } from "../strings.js";

const [width, height, top] = [700, 150, 16];

// `bars` are {value, part, title}; `part` of each value is drawn lighter. More than `most` bars are joined by averages.
export function Bars({ bars, label, format, most = 140 }) {
  const step = Math.ceil(bars.length / most);
  const shown = step < 2 ? bars : Array.from({ length: Math.ceil(bars.length / step) }, (_, i) => {
    const some = bars.slice(i * step, (i + 1) * step);
    const mean = (name) => some.reduce((sum, bar) => sum + (bar[name] || 0), 0) / some.length;
    return { value: mean("value"), part: mean("part"), title: `${some[0].title} …` };
  });
  const high = Math.max(...shown.map((bar) => bar.value)) || 1;
  const slot = width / Math.max(shown.length, 12);
  const tall = (value) => (value / high) * (height - top);
  const scale = { x: slot * 0.12, width: Math.max(slot * 0.76, 1) };
  return html`<svg class="chart" viewBox=${`0 0 ${width} ${height}`} role="img" aria-label=${label}>
    <line class="axis" x1="0" x2=${width} y1=${top} y2=${top} /><line class="axis" x1="0" x2=${width} y1=${height} y2=${height} />
    <text x="0" y="11">${format(high)}</text>
    ${shown.map((bar, i) => html`<g><title>${bar.title}</title>
      <rect class="all" x=${i * slot + scale.x} width=${scale.width} y=${height - tall(bar.value - (bar.part || 0))} height=${tall(bar.value - (bar.part || 0))} />
      ${bar.part > 0 && html`<rect class="rest" x=${i * slot + scale.x} width=${scale.width} y=${height - tall(bar.value)} height=${tall(bar.part)} />`}</g>`)}
  </svg>`;
}

export function CachedKey() {
  const box = (name) => html`<svg class="chart" viewBox="0 0 8 8" aria-hidden="true"><rect class=${name} width="8" height="8" /></svg>`;
  return html`<small class="key"><span>${box("all")}${t("fullPrice")}</span><span>${box("rest")}${t("fromCache")}</span></small>`;
}
