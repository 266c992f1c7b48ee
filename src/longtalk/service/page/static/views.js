// The views besides the chat. Each is loaded when it is opened; a new view is one line here and a title in strings.js.
// A view gets {conversation, branch, turn, onClose}; its address is #/c/ID/NAME.
export const views = {
  inspector: async () => (await import("./inspector/inspector.js")).Inspector,
  branches: async () => (await import("./branches/map.js")).BranchMap,
};
