// A conversation as the page holds it: a window of its entries, its branch, and the turn that runs.
import * as api from "../api.js";
import { createStore } from "../store.js";

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
    this.store = createStore({ info: null, branch, entries: [], before: null, branches: [], pinned: [], excluded: [],
      settings: {}, live: null, lost: false, problem: null, costs: {}, gauge: null });
  }

  async load() {
    let { branch } = this.store.get();
    const { branches } = await api.get(this.path + "/branches");
    if (!branches.some((each) => each.name === branch)) branch = "main";
    const [info, page, marks, settings] = await Promise.all([
      api.get(this.path), api.get(this.path + "/history", { branch, limit: 30 }),
      api.get(this.path + "/marks", { branch }), api.get(this.path + "/settings", { branch })]);
    this.store.set({ info, branch, branches, settings, entries: page.entries, before: page.before, ...marks });
    const head = branches.find((each) => each.name === branch);
    if (head?.status === "running" && !this.store.get().live) this.follow({ turn: head.last_turn, branch });
  }

  async loadOlder(limit = 30) {
    const { branch, before, entries } = this.store.get();
    const page = await api.get(this.path + "/history", { branch, before, limit });
    this.store.set({ entries: [...page.entries, ...entries], before: page.before });
  }

  open(branch) {
    localStorage.setItem("branch:" + this.id, branch);
    this.store.set({ branch });
    return this.load();
  }

  async follow(order) {
    const live = { text: "", reasoning: "", calls: [], turn: order.turn, message: order.shown, edits: order.body?.edits };
    this.aborter = new AbortController();
    this.store.set({ live: { ...live }, problem: null });
    let drawn = true;
    const draw = () => {
      if (!drawn) return;
      drawn = false;
      setTimeout(() => { drawn = true; if (this.store.get().live) this.store.set({ live: { ...live } }); }, 60);
    };
    let problem = null;
    try {
      for await (const event of api.followTurn(this.id, { ...order, signal: this.aborter.signal, onLost: (lost) => {
        if (this.store.get().lost !== lost) this.store.set({ lost }); } })) {
        if (event.type === "started") {
          live.turn = event.turn;
          if (event.branch) {
            localStorage.setItem("branch:" + this.id, event.branch);
            this.store.set({ branch: event.branch });
          }
          announce(this.id);
        } else if (event.type === "text" || event.type === "reasoning") live[event.type] += event.text;
        else if (event.type === "tool_call") live.calls.push(event);
        else if (event.type === "done" && event.turn.cost !== null) {
          this.store.set((now) => ({ costs: { ...now.costs, [event.turn.id]: event.turn.cost } }));
        } else if (event.type === "error") problem = { message: event.error.message, code: event.error.code, order, started: true };
        draw();
      }
    } catch (error) {
      if (!this.aborter.signal.aborted) problem = { message: error.message, order, started: !!live.turn };
    }
    if (this.aborter.signal.aborted) return;
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
    const { info, entries, before } = this.store.get();
    const first = before === null && entries.find((each) => each.role === "user" && each.text);
    if (info.title || !first) return;
    this.store.set({ info: await api.patch(this.path, { title: first.text.trim().split("\n")[0].slice(0, 60) }) });
  }

  // Go on after an error, with the model that is chosen now. A message that is saved already is not sent again.
  retry() {
    const { problem, branch } = this.store.get();
    const body = problem?.order?.body && !problem.started ? problem.order.body : { branch, message: null };
    return this.follow({ body: { ...body, ...this.choice }, branch: body.branch, shown: problem?.order?.shown });
  }

  send(body, shown) {
    const { branch } = this.store.get();
    return this.follow({ body: { branch, ...body }, branch, shown });
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
