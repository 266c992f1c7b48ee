// All texts of the page. A translation is a copy of this file.
export const strings = {
  newChat: "New chat", search: "Search conversations", untitled: "Untitled", rename: "Rename", delete: "Delete",
  deleteSure: "Delete “{title}” for good? Export it first if you may need it.", export: "Export", import: "Import a file",
  imported: "Imported.", theme: "Light or dark", keys: "Access keys", signOut: "Sign out", revoke: "Revoke", thisKey: "this one",
  signIn: "Sign in", accessKey: "Access key", signInHelp: "Make a key on the server: longtalk keys add NAME",
  message: "Message", send: "Send", stop: "Stop", attach: "Attach an image", removeImage: "Remove image", note: "Add as note",
  edit: "Edit", save: "Save", cancel: "Cancel", regenerate: "Regenerate", fork: "Fork from here", copy: "Copy",
  pin: "Pin", unpin: "Unpin", exclude: "Leave out of context", include: "Put back into context", pinned: "pinned", excluded: "left out",
  reasoning: "Reasoning", toolCall: "Tool call: {name}", toolResult: "Result: {name}", you: "You", answer: "Answer", noteRole: "Note",
  older: "Show earlier messages", branches: "Map of branches", previousVersion: "Previous version", nextVersion: "Next version",
  model: "Model", policy: "Policy", asBefore: "as before", lost: "Connection lost. Trying again…", retry: "Try again",
  usage: "{input} in · {output} out", usageCost: "{input} in · {output} out · ${cost}", gauge: "{tokens} tokens{window} in the next request",
  ofWindow: " of {window}", nextCost: " · about ${cost}", stopped: "Stopped", empty: "What shall we talk about?", entries: "{count} entries",
  menu: "Conversations", close: "Close", whatWasSent: "What the model saw", conversationMenu: "Actions of this conversation",

  cutOff: "This answer was cut off.", goOn: "Go on",

  // Views
  inspector: "What the model saw", noTurn: "No turn has run on this branch yet.", total: "Tokens of the last request",
  part_history: "Messages", part_brief: "Brief", part_outline: "Outline", part_recall: "Recalled", part_left_out: "Left out",
  positions: "Messages", verdict: "What happened", reason: "Why", tokens: "Tokens", requests: "The exact requests",
  verdict_sent: "sent", verdict_held: "held by the provider", verdict_recalled: "recalled", verdict_summarised: "summarised",
  verdict_handed_out: "handed out", verdict_left_out: "left out", forksAt: "forks after {shared},", more: "More",
};

export function t(key, values = {}) {
  return strings[key].replace(/\{(\w+)\}/g, (_, name) => String(values[name] ?? ""));
}
