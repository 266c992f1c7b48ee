// The box of messages: what the reader sees stays where it is while entries come and go around it.
// Before and behind the entries of the window, as much room is kept as the rest of the conversation may take.
import { Component, html } from "../ui.js";
import { t } from "../strings.js";

const near = 60; // pixels from the end at which the reader follows it

export class Scroller extends Component {
  constructor(props) {
    super(props);
    Object.assign(this, { follows: !props.isAwaited, goesToEnd: false, reached: null, wanted: null, height: 0, last: 0 });
    this.state = { isAway: false };
    this.watcher = new ResizeObserver(() => this.settle());
  }

  componentDidMount() {
    this.watcher.observe(this.column);
    this.watcher.observe(this.box);
    this.place(null);
  }

  componentWillUnmount() {
    this.watcher.disconnect();
  }

  // Note the first entry in sight, and where it is, before anything changes.
  getSnapshotBeforeUpdate() {
    if (this.follows) return null;
    const edge = this.box.getBoundingClientRect().top;
    for (const entry of this.feed.children) {
      const { top, bottom } = entry.getBoundingClientRect();
      if (bottom > edge) return { entry, top };
    }
    return null;
  }

  componentDidUpdate(before, _, noted) {
    if (before.goal !== this.props.goal) this.reached = null;
    if (before.isAwaited && !this.props.isAwaited && !this.props.goal) this.follows = true; // there is no such message
    if (!before.talkState.live && this.props.talkState.live?.message) return this.goToEnd(); // the reader has sent a message
    if (before.talkState.notes !== this.props.talkState.notes) return this.goToEnd(); // or added a note
    this.place(noted);
    if (before.talkState.entries !== this.props.talkState.entries) requestAnimationFrame(() => this.fill());
  }

  place(noted) {
    const { goal, talkState: { entries, from, to, size } } = this.props;
    if (!this.height && to - from > 3) this.height = this.feed.offsetHeight / (to - from);
    this.above.style.height = `${from * this.height}px`;
    this.below.style.height = `${(size - to) * this.height}px`;
    const target = goal && goal !== this.reached && document.getElementById("entry-" + goal);
    if (target) {
      [this.reached, this.follows] = [goal, false];
      target.scrollIntoView({ block: "center" });
      target.focus({ preventScroll: true });
    } else if (this.wanted !== null && from <= this.wanted && this.wanted < to) {
      const found = entries.find((each) => each.position >= this.wanted);
      if (this.wanted === 0) this.box.scrollTop = 0;
      else document.getElementById("entry-" + found?.id)?.scrollIntoView({ block: "start" });
      this.wanted = null;
    } else if (this.follows) this.settle();
    else if (noted?.entry.isConnected) this.box.scrollTop += noted.entry.getBoundingClientRect().top - noted.top;
  }

  // Stay at the end if the reader is there.
  settle() {
    if (!this.box) return; // left meanwhile
    const { to, size } = this.props.talkState;
    const { scrollTop, scrollHeight, clientHeight } = this.box;
    // The reader may have gone up already, while the event that says so is still to come.
    if (this.follows && scrollTop < this.last - 1 && this.room === clientHeight && scrollHeight - scrollTop - clientHeight > near) this.follows = false;
    this.room = clientHeight;
    if (this.follows && to >= size) this.box.scrollTop = this.box.scrollHeight;
    this.last = this.box.scrollTop;
  }

  onScroll() {
    if (!this.box || this.goesToEnd) return; // an event that came late, or on the way to the end
    const { scrollTop, scrollHeight, clientHeight } = this.box;
    const { to, size } = this.props.talkState;
    const rest = scrollHeight - scrollTop - clientHeight;
    // What grows below the reader scrolls nothing: only going up means to leave the end.
    if (to >= size && rest < near) this.follows = true;
    else if (scrollTop < this.last || to < size) this.follows = false;
    this.last = scrollTop;
    const isAway = !this.follows && rest > clientHeight / 2;
    if (isAway !== this.state.isAway) this.setState({ isAway });
    this.fill();
  }

  // Load the entries around what is in sight.
  fill() {
    // On the way to a message that an address names, the box stands at its top without being scrolled there.
    if (!this.box?.isConnected || this.goesToEnd || this.wanted !== null || this.props.isAwaited) return;
    const { talk, talkState: { from, to, size } } = this.props;
    const [view, room] = [this.box.clientHeight, this.feed.offsetHeight];
    const start = this.box.scrollTop - this.feed.offsetTop;
    const rest = room - start - view;
    const load = (work) => work.catch(() => {}); // without a network: scrolling tries again
    if (start + view < 0 && from > 0) this.jump(Math.floor(this.box.scrollTop / this.height));
    else if (start > room && to < size) this.jump(to + Math.floor((start - room) / this.height));
    else if (start < 1.5 * view && from > 0) load(talk.loadOlder());
    else if (rest < 1.5 * view && to < size) load(talk.loadNewer());
  }

  jump(position) {
    const { size } = this.props.talkState;
    if (this.box.scrollHeight - this.box.scrollTop - this.box.clientHeight < near) return this.goToEnd();
    this.wanted = Math.min(size - 1, position);
    return this.props.talk.loadAround(this.wanted).catch(() => {}).then(() => { this.wanted = null; });
  }

  async goToEnd() {
    const { to, size } = this.props.talkState;
    this.follows = true;
    this.goesToEnd = true;
    if (to < size) await this.props.talk.loadLatest().catch(() => {});
    this.goesToEnd = false;
    if (!this.box) return; // left meanwhile
    this.follows = true;
    this.last = 0; // whichever way it was scrolled meanwhile
    this.settle();
    this.setState({ isAway: false });
  }

  render({ before, children, after }, { isAway }) {
    return html`<div class="history"><div class="messages" ref=${(found) => { this.box = found; }} onScroll=${() => this.onScroll()}>
      <div class="column" ref=${(found) => { this.column = found; }}>
        <div aria-hidden="true" ref=${(found) => { this.above = found; }} />
        ${before}
        <div class="feed" role=${children.length ? "feed" : null} aria-label=${children.length ? t("history") : null} ref=${(found) => { this.feed = found; }}>${children}</div>
        <div aria-hidden="true" ref=${(found) => { this.below = found; }} />
        ${after}
      </div></div>
      ${isAway && html`<button class="latest" onClick=${() => { this.goToEnd(); document.getElementById("message")?.focus(); }}>${t("latest")} <span aria-hidden="true">↓</span></button>`}</div>`;
  }
}
