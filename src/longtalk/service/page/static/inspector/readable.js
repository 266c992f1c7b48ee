// A request as a list that can be read: instructions, tools and messages, in the order of its JSON, whichever provider it is for.
import { strings, t } from "../strings.js";

const lists = ["messages", "input", "contents"];
const instructions = ["system", "instructions", "systemInstruction", "system_instruction"];
const given = ["input", "args", "arguments", "response", "parameters"]; // to and by tools: as JSON
const silent = new Set(["role", "type", "id", "call_id", "tool_call_id", "tool_use_id", "status", "signature", "thoughtSignature", "encrypted_content", "cache_control", "detail", "mimeType", "media_type"]);

function readText(value, name = "") {
  if (typeof value === "string") return value.startsWith("data:") || name === "data" ? t("image") : value;
  if (Array.isArray(value)) return value.map((each) => readText(each)).filter(Boolean).join("\n");
  if (value === null || typeof value !== "object") return value === null || value === undefined ? "" : String(value);
  if (given.includes(name)) return JSON.stringify(value);
  return Object.entries(value).filter(([key]) => !silent.has(key)).map(([key, each]) => readText(each, key)).filter(Boolean).join("\n");
}

const isAdded = (text) => /^<(earlier_conversation|memory|recalled|brief|instruction|event)>/.test(text);
function nameRole(role, text) {
  if (isAdded(text)) return t("role_added");
  return strings["role_" + (role === "model" ? "assistant" : role)] ?? role;
}

// Return the items of a request, {label, text, key, at, size}, and its settings in words; null if it is not a JSON object.
// `at` and `size` are in characters, about.
export function readRequest(body) {
  let parsed;
  try { parsed = JSON.parse(body); } catch { return null; }
  if (!parsed || typeof parsed !== "object" || Array.isArray(parsed)) return null;
  const [items, settings] = [[], []];
  let at = 0;
  const add = (role, text, value) => {
    const key = JSON.stringify(value);
    items.push({ label: nameRole(role, text), text, key, at, size: key.length });
    at += key.length + 1;
  };
  for (const [name, value] of Object.entries(parsed)) {
    if (lists.includes(name)) for (const each of [value].flat()) add(each.role || each.type || "user", readText(each), each);
    else if (instructions.includes(name)) add("system", readText(value), value);
    else if (name === "tools") add("tools", [value].flat().map((each) => each.name ?? each.function?.name ?? JSON.stringify(each)).join(", "), value);
    else {
      settings.push(`${name} ${typeof value === "object" ? JSON.stringify(value) : value}`);
      at += name.length + JSON.stringify(value).length + 4;
    }
  }
  return { items, settings: settings.join(" · "), size: at };
}

// Return the place of the first item that the request before did not have.
export function findNew(items, before) {
  const place = items.findIndex((each, i) => before[i]?.key !== each.key);
  return place < 0 ? items.length : place;
}
