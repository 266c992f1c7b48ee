// Charts drawn as SVG: bars with lines over them, and lines alone. The numbers are in tables too, and under the pointer.
import { html, useState } from "../ui.js";
import { t } from "../strings.js";

const [width, height, top] = [700, 150, 6];

// Join neighbours by their average, so that at most `most` values are drawn. Unknown values stay unknown.
function thin(values, most = 140) {
  const step = Math.ceil(values.length / most);
  if (step < 2) return values;
  return Array.from({ length: Math.ceil(values.length / step) }, (_, i) => {
    const known = values.slice(i * step, (i + 1) * step).filter((value) => value !== null);
    return known.length ? known.reduce((sum, value) => sum + value, 0) / known.length : null;
  });
}

function thinTitles(titles, size) {
  const step = Math.ceil(titles.length / Math.max(1, size));
  return titles.filter((_, i) => i % step === 0);
}

// Lines that are the same all along are one line with all of their names, so that none hides another.
function joinEqual(lines) {
  const found = new Map();
  for (const { name, values } of lines) {
    const key = JSON.stringify(values);
    found.set(key, { name: found.has(key) ? `${found.get(key).name} = ${name}` : name, values });
  }
  return [...found.values()];
}

// `bars` are {name, values, part}: `part` of each value is drawn lighter. `lines` are {name, values}. `titles` name the
// places. The list of what is drawn shows its values at the place under the pointer, else their sum.
export function Chart({ bars, lines = [], titles, label, format, sums = true }) {
  const [at, setAt] = useState(null);
  const value = bars ? thin(bars.values) : [];
  const part = bars?.part ? thin(bars.part) : [];
  lines = joinEqual(lines);
  const drawn = lines.map((line) => thin(line.values));
  const size = Math.max(value.length, ...drawn.map((values) => values.length), 1);
  const names = thinTitles(titles, size);
  const high = Math.max(...value, ...drawn.flat().filter((each) => each !== null)) || 1;
  const slot = width / Math.max(size, 12);
  const y = (each) => height - (each / high) * (height - top);
  const path = (values) => values.map((each, i) => (each === null ? "" : `${i && values[i - 1] !== null ? "L" : "M"}${((i + 0.5) * slot).toFixed(1)} ${y(each).toFixed(1)}`)).join("");
  const follow = (event) => {
    const box = event.currentTarget.getBoundingClientRect();
    const place = Math.floor(((event.clientX - box.left) / box.width) * width / slot);
    setAt(place >= 0 && place < size ? place : null);
  };
  const total = (values) => { const known = values.filter((each) => each !== null); return known.length ? known.reduce((sum, each) => sum + each, 0) : null; };
  const shown = (raw, small) => (at !== null ? format(small[at] ?? null) : sums ? format(total(raw)) : format(raw[raw.length - 1] ?? null));
  const key = [...(bars ? [{ name: bars.name, kind: "all", text: shown(bars.values, value) }] : []),
    ...(bars?.part ? [{ name: bars.partName, kind: "rest", text: shown(bars.part, part) }] : []),
    ...lines.map((line, i) => ({ name: line.name, kind: "line" + i, text: shown(line.values, drawn[i]) }))];
  // Texts are beside the drawing, so that they stay as large as other text where it is small.
  return html`<p class="scale-of" aria-hidden="true"><small>${format(high)}</small></p><svg class="chart" viewBox=${`0 0 ${width} ${height}`} role="img" aria-label=${label} onPointerMove=${follow} onPointerLeave=${() => setAt(null)}>
      <rect class="back" width=${width} height=${height} />
      <line class="axis" x1="0" x2=${width} y1=${top} y2=${top} /><line class="axis" x1="0" x2=${width} y1=${height} y2=${height} />
      ${at !== null && html`<rect class="here" x=${at * slot} width=${slot} y=${top} height=${height - top} />`}
      ${value.map((each, i) => html`<rect class="all" x=${i * slot + slot * 0.12} width=${Math.max(slot * 0.76, 1)} y=${y(each - (part[i] || 0))} height=${height - y(each - (part[i] || 0))} />
        ${part[i] > 0 && html`<rect class="rest" x=${i * slot + slot * 0.12} width=${Math.max(slot * 0.76, 1)} y=${y(each)} height=${y(each - part[i]) - y(each)} />`}`)}
      ${drawn.map((values, i) => html`<path class=${"path line" + i} d=${path(values)} />`)}
    </svg>
    ${names.length > 1 && html`<p class="scale-of" aria-hidden="true" style=${{ width: `${Math.min(100, (100 * names.length * slot) / width)}%` }}><small>${names[0]}</small><small>${names[names.length - 1]}</small></p>`}
    <p class="key"><small>${at !== null ? names[at] : sums ? t("inSum") : t("atTheEnd")}</small>${key.map((each) => html`<small key=${each.name}><svg viewBox="0 0 8 8" aria-hidden="true"><rect class=${each.kind} width="8" height="8" rx="1.5" /></svg>${each.name} <b>${each.text}</b></small>`)}</p>`;
}
