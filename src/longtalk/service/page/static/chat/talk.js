// A conversation as the page holds it: a window of its entries, its branch, and the turn that runs.
import * as api from "../api.js";
import { createStore } from "../store.js";
import { cut } from "../format.js";
import { prepareMarkdown } from "../markdown.js";
import { keepEarlier } from "../money/policies.js";

const pageSize = 30;
const most = 90; // entries in the window

// Return new entries, with the objects of those that were there and have not changed, so that they are not drawn again.
function reuse(old, entries) {
  const known = new Map(old.map((each) => [each.id, each]));
  const isSame = (a, b) => a && ["text", "native", "status", "mark", "position"].every((name) => a[name] === b[name]);
  return entries.map((each) => (isSame(known.get(each.id), each) ? known.get(each.id) : each));
}

// Tabs tell each other which conversation has changed. Views of this tab hear it too, with `here` true.
const channel = new BroadcastChannel("longtalk");
const listeners = new Set();
channel.onmessage = (event) => listeners.forEach((listen) => listen(event.data, false));
export function announce(conversation) {
  channel.postMessage(conversation);
  listeners.forEach((listen) => listen(conversation, true));
}
export function onOthers(listen) {
  listeners.add(listen);
  return () => listeners.delete(listen);
}

export class Talk {
  constructor(id) {
    this.id = id;
    this.path = api.one(id);
    this.choice = {}; // the model and the policy that the composer shows
    const branch = localStorage.getItem("branch:" + id) || "main";
    // The window has the entries at the positions from `from` up to `to`, of `size` in all.
    this.store = createStore({ info: null, branch, entries: [], from: 0, to: 0, size: 0, branches: [], pinned: [], excluded: [],
      settings: {}, live: null, lost: false, problem: null, costs: {}, gauge: null, notes: 0, inspected: sessionStorage.getItem("turn:" + id), compactions: new Map() });
    this.stream = createStore({ text: "", reasoning: "", calls: [] }); // the answer as it comes
    this.spoken = createStore({ parts: [], count: 0 }); // its last parts, for screen readers
    this.drawing = 0; // milliseconds that the last drawing of it took
  }

  async readPage(branch, before, limit) {
    const page = await api.get(this.path + "/history", { branch, before, limit: Math.max(1, limit) });
    await prepareMarkdown(page.entries.filter((each) => each.role === "assistant").map((each) => each.text));
    this.store.set((now) => ({ costs: { ...now.costs, ...page.costs } }));
    return { entries: page.entries, from: page.before ?? 0 };
  }

  // Load what may have changed: the window stays where it is, and goes on to the end if it was there.
  // Of two loads at the same time, the later one counts.
  load() {
    this.loads = (this.loads ?? 0) + 1;
    this.loading = this.readAll(this.loads);
    return this.loading;
  }

  async readAll(number) {
    let { branch } = this.store.get();
    const { branches } = await api.get(this.path + "/branches");
    if (!branches.some((each) => each.name === branch)) branch = "main";
    const { from, to, size } = this.store.get();
    const before = to < size ? to : undefined;
    const [info, page, marks, settings] = await Promise.all([
      api.get(this.path), this.readPage(branch, before, before ? to - from : Math.min(most, Math.max(pageSize, to - from))),
      api.get(this.path + "/marks", { branch }), api.get(this.path + "/settings", { branch })]);
    if (number !== this.loads) return this.loading;
    const now = this.store.get();
    if (now.branch === branch && (now.from !== from || now.to !== to)) return this.load(); // the window was moved meanwhile
    keepEarlier(this.id, settings.policy);
    const head = branches.find((each) => each.name === branch);
    const end = Math.max(head?.entries ?? 0, (page.entries.at(-1)?.position ?? -1) + 1);
    this.store.set((now) => ({ info, branch, settings, size: end, from: page.from, to: before ?? end, ...marks,
      branches: JSON.stringify(branches) === JSON.stringify(now.branches) ? now.branches : branches, entries: reuse(now.entries, page.entries) }));
    this.loadCompactions(branch, head?.last_turn).catch(() => {});
    if (head?.status === "running" && !this.store.get().live) this.follow({ turn: head.last_turn, branch });
  }

  // Load where the branch was compacted: by the position of the first message after it, what stands in place of older ones.
  async loadCompactions(branch, turn) {
    const key = `${branch} ${turn}`;
    if (!turn || key === this.compactedTo) return;
    const { epochs } = await api.get(this.path + "/epochs", { branch });
    this.compactedTo = key;
    if (this.store.get().branch !== branch || !(epochs.length + this.store.get().compactions.size)) return;
    this.store.set(({ compactions: old }) => ({ compactions: new Map(epochs.map(({ start, summary, tokens, reason, runs }) => {
      const known = old.get(start);
      return [start, known?.summary === summary && known.tokens === tokens ? known : { summary, tokens, reason, isReplaced: runs.some((run) => run.reason === "brief" || run.reason === "summary") }];
    })) }));
  }

  // Change the window by a page. One change at a time, and none of a branch that was left meanwhile.
  move(read) {
    this.moving ??= this.change(read).finally(() => { this.moving = null; });
    return this.moving;
  }

  async change(read) {
    const { branch } = this.store.get();
    const change = await read(this.store.get());
    if (this.store.get().branch === branch) this.store.set(change);
  }

  loadOlder() {
    return this.move(async ({ branch, from }) => {
      const page = await this.readPage(branch, from, pageSize);
      return ({ entries, to }) => {
        const all = [...page.entries, ...entries];
        return { entries: all.slice(0, most), from: page.from, to: all[most]?.position ?? to };
      };
    });
  }

  loadNewer() {
    return this.move(async ({ branch, to, size }) => {
      const end = Math.min(size, to + pageSize);
      const page = await this.readPage(branch, end, end - to);
      return ({ entries, from }) => {
        const all = [...entries, ...page.entries.filter((each) => each.position >= to)];
        return { entries: all.slice(-most), from: all.length > most ? all.at(-most).position : from, to: end };
      };
    });
  }

  // Move the window to a position, after a change that is under way.
  async loadAround(position) {
    while (this.moving) await this.moving.catch(() => {});
    return this.move(async ({ branch, size }) => {
      const end = Math.min(size, Math.max(position + pageSize / 2, pageSize));
      const page = await this.readPage(branch, end, pageSize);
      return { ...page, to: end };
    });
  }

  loadLatest() {
    return this.loadAround(Infinity);
  }

  // Return the position of an entry on the branch, or null. Most addresses of entries have it, so that this is not needed.
  async findEntry(id) {
    const { branch, size } = this.store.get();
    for (let before = size; before > 0;) {
      const page = await api.get(this.path + "/history", { branch, before, limit: 1000 });
      const found = page.entries.find((each) => each.id === id);
      if (found) return found.position;
      before = page.before ?? 0;
    }
    return null;
  }

  open(branch) {
    localStorage.setItem("branch:" + this.id, branch);
    this.inspect(null);
    this.store.set({ branch, from: 0, to: 0, size: 0 });
    return this.load();
  }

  // Draw the answer as it comes: once in a frame at most, and less often when it is long, so that the page has time for the rest.
  draw(answer) {
    if (this.due) return;
    this.due = true;
    const drawNow = () => { this.due = false; this.stream.set({ ...answer }); };
    setTimeout(() => (document.hidden ? drawNow() : requestAnimationFrame(drawNow)), Math.min(500, Math.max(20, 4 * this.drawing)));
  }

  // Have a screen reader read a finished part.
  speak(text) {
    this.spoken.set(({ parts, count }) => ({ parts: [...parts.slice(-3), { text, number: count }], count: count + 1 }));
  }

  async follow(order) {
    const answer = { text: "", reasoning: "", calls: [] };
    this.aborter = new AbortController();
    this.stream.set({ ...answer });
    if (order.body) this.inspect(null); // the turn that begins is the last one
    this.store.set({ live: { turn: order.turn, message: order.shown }, problem: null });
    let problem = null;
    try {
      for await (const event of api.followTurn(this.id, { ...order, signal: this.aborter.signal, onLost: (lost) => {
        if (this.store.get().lost !== lost) this.store.set({ lost }); } })) {
        if (event.type === "started") {
          this.store.set(({ live }) => ({ live: { ...live, turn: event.turn } }));
          if (event.branch) {
            localStorage.setItem("branch:" + this.id, event.branch);
            this.store.set({ branch: event.branch });
          }
          announce(this.id);
        } else if (event.type === "text" || event.type === "reasoning") answer[event.type] += event.text;
        else if (event.type === "tool_call") answer.calls = [...answer.calls, event];
        else if (event.type === "done" && event.turn.cost !== null) {
          this.store.set((now) => ({ costs: { ...now.costs, [event.turn.id]: event.turn.cost } }));
        } else if (event.type === "error") problem = { message: event.error.message, code: event.error.code, order, started: true };
        this.draw(answer);
      }
    } catch (error) {
      if (!this.aborter.signal.aborted) problem = { message: error.message, code: error.code, order, started: !!this.store.get().live?.turn };
    }
    if (this.aborter.signal.aborted) return;
    this.stream.set({ ...answer });
    await this.load().catch(() => {});
    // The service was started again in mid-answer: the tab that asked goes on by itself, once.
    if (problem?.code === "interrupted" && order.body && !order.again) {
      return this.follow({ ...order, turn: undefined, again: true, body: { ...this.choice, branch: this.store.get().branch, message: null } });
    }
    this.store.set({ live: null, lost: false, problem: problem?.code === "interrupted" ? null : problem });
    await this.nameIt().catch(() => {});
    announce(this.id);
  }

  // The first words name a new conversation until it is renamed.
  async nameIt() {
    const { info, entries, from } = this.store.get();
    const first = from === 0 && entries.find((each) => each.role === "user" && each.text);
    if (info.title || !first) return;
    this.store.set({ info: await api.patch(this.path, { title: cut(first.text.trim().split("\n")[0], 60) }) });
  }

  // Go on after an error, with the model that is chosen now. A message that is saved already is not sent again.
  retry() {
    const { problem, branch } = this.store.get();
    const { model, policy, ...body } = problem?.order?.body && !problem.started ? problem.order.body : { branch, message: null };
    return this.follow({ body: { ...body, ...this.choice }, branch: body.branch, shown: problem?.order?.shown });
  }

  send(body, shown) {
    const { branch } = this.store.get();
    return this.follow({ body: { branch, ...body }, branch, shown });
  }

  // Show a turn in the inspector: one of the branch, "next" for the request to come, or null for the last.
  inspect(turn) {
    if (turn) sessionStorage.setItem("turn:" + this.id, turn); else sessionStorage.removeItem("turn:" + this.id);
    this.store.set({ inspected: turn });
  }

  async stop() {
    const { live, branch } = this.store.get();
    if (live?.turn) await api.post(`${this.path}/turns/${live.turn}/cancel`, {}, { branch });
  }

  close() {
    this.aborter?.abort();
  }

  async mark(kind, entry, on) {
    const { branch } = this.store.get();
    this.store.set(await (on ? api.put : api.remove)(`${this.path}/${kind}/${entry}`, { branch }));
    announce(this.id);
  }

  async estimate(body) {
    const { branch } = this.store.get();
    this.store.set({ gauge: await api.post(this.path + "/estimate", { branch, ...body }) });
  }
}
