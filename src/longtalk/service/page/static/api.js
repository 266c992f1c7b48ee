// Calls of the service. Paths begin after /longtalk/v1; `one(id)` is the path of a conversation.
import { makePacer } from "./pace.js";

const base = new URL("longtalk/v1", document.baseURI).href;
const session = new URL("page/session", document.baseURI).href;
const pause = (ms) => new Promise((done) => setTimeout(done, ms));
export const one = (id) => "/conversations/" + encodeURIComponent(id);

export class ApiError extends Error {
  constructor(status, error) {
    super(error.message);
    Object.assign(this, { status, code: error.code, param: error.param });
  }
}

async function request(url, { method = "GET", body, query, headers, signal } = {}) {
  const given = Object.entries(query || {}).filter(([, value]) => value !== undefined && value !== null);
  const isFile = body instanceof Blob;
  const response = await fetch(url + (given.length ? "?" + new URLSearchParams(given) : ""), {
    method,
    signal,
    headers: { "longtalk-page": "1", ...(body && !isFile ? { "content-type": "application/json" } : {}), ...headers },
    body: body === undefined || isFile ? body : JSON.stringify(body),
  });
  if (response.ok) return response;
  const text = await response.text();
  let error = { message: text || response.statusText };
  try {
    error = JSON.parse(text).error || error;
  } catch {
    // A proxy may answer with something that is not JSON.
  }
  throw new ApiError(response.status, error);
}

async function json(method, path, body, query) {
  return (await request(base + path, { method, body, query })).json();
}

export const get = (path, query) => json("GET", path, undefined, query);
export const post = (path, body = {}, query) => json("POST", path, body, query);
export const patch = (path, body, query) => json("PATCH", path, body, query);
export const put = (path, query, body = {}) => json("PUT", path, body, query);
export const remove = (path, query) => json("DELETE", path, undefined, query);
export const download = async (path, query) => (await request(base + path, { query })).blob();
export const signIn = (key) => request(session, { method: "POST", body: { key } });
export const signOut = () => request(session, { method: "DELETE" });

async function* readEvents(response) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  const pace = makePacer();
  let rest = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    const blocks = (rest + value).split("\n\n");
    rest = blocks.pop();
    for (const block of blocks) {
      const lines = block.split("\n");
      const id = lines.find((line) => line.startsWith("id: "));
      const data = lines.find((line) => line.startsWith("data: "));
      if (data) yield [Number(id.slice(4)), JSON.parse(data.slice(6))];
      await pace();
    }
  }
}

// Call `stop` when a connection can't be trusted any more: the network has gone, or the tab has slept for long. Return a
// function that ends this.
function watchNetwork(stop) {
  let hidden = document.hidden ? Date.now() : Infinity;
  const look = () => {
    if (document.hidden) hidden = Date.now();
    else if (Date.now() - hidden > 30000) stop();
  };
  addEventListener("offline", stop);
  document.addEventListener("visibilitychange", look);
  return () => { removeEventListener("offline", stop); document.removeEventListener("visibilitychange", look); };
}

// Wait some milliseconds, or until the network is back.
async function pauseUntilOnline(ms) {
  let back;
  const online = new Promise((done) => { back = done; addEventListener("online", done, { once: true }); });
  await Promise.race([online, pause(ms)]);
  removeEventListener("online", back);
}

// Yield the events of a turn to its end. A lost connection is taken up again after the last event that has arrived:
// by the turn's id, or before that is known by the same request with the same Idempotency-Key.
export async function* followTurn(conversation, { body, turn, branch = "main", signal, onLost = () => {} }) {
  const key = crypto.getRandomValues(new Uint32Array(4)).join("-");
  let after = -1;
  let wait = 500;
  for (;;) {
    const connection = new AbortController();
    const stop = () => connection.abort();
    const unwatch = watchNetwork(stop);
    signal?.addEventListener("abort", stop, { once: true });
    if (signal?.aborted) stop();
    try {
      const response = turn
        ? await request(`${base}${one(conversation)}/turns/${encodeURIComponent(turn)}/events`, { query: { after, branch }, signal: connection.signal })
        : await request(`${base}${one(conversation)}/turns`, {
            method: "POST", body: { ...body, stream: true }, headers: { "idempotency-key": key }, signal: connection.signal });
      onLost(false);
      for await (const [number, event] of readEvents(response)) {
        if (number <= after) continue;
        [after, wait] = [number, 500];
        if (event.type === "started") [turn, branch] = [event.turn, event.branch || branch];
        yield event;
        if (event.type === "done" || event.type === "error") return;
      }
    } catch (error) {
      if (signal?.aborted || (error instanceof ApiError && error.status < 500)) throw error;
      if (error instanceof ApiError && !turn && error.code !== "interrupted") throw error;
    } finally {
      unwatch();
      signal?.removeEventListener("abort", stop);
    }
    onLost(true);
    await pauseUntilOnline(wait);
    wait = Math.min(wait * 2, 8000);
  }
}
