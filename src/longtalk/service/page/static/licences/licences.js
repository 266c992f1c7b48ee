// The parts of the page that others wrote, with their licences. The list is made when they are fetched.
import { html, useEffect, useState } from "../ui.js";
import { t } from "../strings.js";
import { report } from "../dialogs.js";

const folder = new URL("../vendor/", import.meta.url);

export function Licences() {
  const [parts, setParts] = useState([]);
  useEffect(() => {
    fetch(new URL("licences.txt", folder)).then((found) => found.text()).then((text) => setParts(text.trim().split("\n").map((line) => line.split("\t")))).catch(report);
  }, []);
  return html`<div class="view"><div class="column pad"><h1>${t("licences")}</h1><p class="quiet">${t("licencesHelp")}</p>
    <ul class="lines">${parts.map(([part, licence, ...files]) => html`<li key=${part}>${part}<small>${licence} · ${files.map((file) => html`<a href=${new URL(file, folder).href}>${file}</a> `)}</small></li>`)}</ul></div></div>`;
}
