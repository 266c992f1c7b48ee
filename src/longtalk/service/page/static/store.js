// A store holds a value; components that use it render again when it changes.
import { useEffect, useState } from "./ui.js";

export function createStore(initial) {
  let value = initial;
  const listeners = new Set();
  return {
    get: () => value,
    set(change) {
      value = { ...value, ...(typeof change === "function" ? change(value) : change) };
      listeners.forEach((listener) => listener(value));
    },
    subscribe(listener) {
      listeners.add(listener);
      return () => listeners.delete(listener);
    },
  };
}

export function useStore(store) {
  const [value, setValue] = useState(store.get());
  useEffect(() => {
    setValue(store.get());
    return store.subscribe(setValue);
  }, [store]);
  return value;
}

// A text that is being written: it is kept in this tab while its view is left. null for none.
export function useKept(key) {
  const [text, setText] = useState(sessionStorage.getItem(key));
  const keep = (value) => {
    if (value === null || value === "") sessionStorage.removeItem(key); else sessionStorage.setItem(key, value);
    setText(value);
  };
  return [text, keep];
}

export const app = createStore({ conversations: [], next: null, models: [], providers: [], health: null, signedOut: false, problem: "", chosen: null });
