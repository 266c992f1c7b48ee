// Long work in short tasks, so that the page answers to keys and the wheel meanwhile.
const slice = 8; // milliseconds

// Let the browser do what waits. Timers would wait for seconds in a hidden tab.
export function breathe() {
  if (globalThis.scheduler?.yield) return scheduler.yield();
  return new Promise((done) => {
    const { port1, port2 } = new MessageChannel();
    port1.onmessage = () => { port1.close(); done(); };
    port2.postMessage(null);
  });
}

// Return a function that is awaited between steps, and lets the browser work when some milliseconds are over.
export function makePacer() {
  let begun = performance.now();
  return async () => {
    if (performance.now() - begun < slice) return;
    await breathe();
    begun = performance.now();
  };
}
