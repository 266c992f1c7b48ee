// What views are made of: Preact with htm, which need no bundler.
import htm from "./vendor/htm/dist/htm.module.js";
import { Component, h } from "./vendor/htm/preact/standalone.module.js";
export * from "./vendor/htm/preact/standalone.module.js";

// htm would keep what has no changing part. Such a part is linked to its parents, and so to all that was ever drawn.
export const html = htm.bind(function create(...parts) {
  this[0] = 3; // "not static"
  return h(...parts);
});

// A view that is drawn again only when a property has changed.
export function memo(View) {
  return class extends Component {
    shouldComponentUpdate(next) {
      const names = Object.keys({ ...next, ...this.props });
      return names.some((name) => next[name] !== this.props[name]);
    }
    render(props) { return html`<${View} ...${props} />`; }
  };
}
