// All texts of the page. A translation is a copy of this file.
export const strings = {
  newChat: "New chat", search: "Search conversations", untitled: "Untitled", rename: "Rename", delete: "Delete",
  deleteTitle: "Delete “{title}”?", deleteSure: "It is deleted for good. Export it first if you may need it.",
  renameTitle: "Rename “{title}”", titleField: "Title", export: "Export", import: "Import a file",
  imported: "Imported.", theme: "Light or dark", keys: "Access keys", signOut: "Sign out", revoke: "Revoke", thisKey: "this one",
  signIn: "Sign in", accessKey: "Access key", signInHelp: "Make a key on the server: longtalk keys add NAME",
  message: "Message", send: "Send", stop: "Stop", attach: "Attach an image", removeImage: "Remove image", note: "Add as note",
  edit: "Edit", save: "Save", cancel: "Cancel", regenerate: "Regenerate", fork: "Fork from here", copy: "Copy",
  pin: "Pin", unpin: "Unpin", exclude: "Leave out of context", include: "Put back into context", pinned: "pinned", excluded: "left out",
  reasoning: "Reasoning", toolCall: "Tool call: {name}", toolResult: "Result: {name}", you: "You", answer: "Answer", noteRole: "Note",
  history: "Messages of this conversation", deletedElsewhere: "This conversation has been deleted.", latest: "Latest", branches: "Map of branches", previousVersion: "Previous version", nextVersion: "Next version",
  model: "Model", policy: "Policy", asBefore: "as before", lost: "Connection lost. Trying again…", retry: "Try again",
  usage: "{input} in · {output} out", usageCost: "{input} in · {output} out · {cost}", usageUnpriced: "{input} in · {output} out · cost unknown", gauge: "{tokens} tokens in the next request{window}",
  ofWindow: " of the {window} that the model takes", ofPolicy: ", shortened above {window}", nextCost: " · about {cost}", nextCostUnknown: " · cost unknown", stopped: "Stopped", empty: "What shall we talk about?", entries: "{count} entries",
  menu: "Conversations", close: "Close", whatWasSent: "What the model saw", conversationMenu: "Actions of this conversation",

  // The palette
  palette: "Commands", paletteHelp: "A conversation, words of a message, or what to do", actions: "Actions", messages: "Messages",
  choices: "{count} found", noChoice: "Nothing has this name.", shortcuts: "Keyboard shortcuts", newLine: "New line", closeAny: "Close a panel or dialog",
  renameThis: "Rename this conversation", exportThis: "Export this conversation as {format}", deleteThis: "Delete this conversation",

  // The keys of providers
  providerKeys: "Provider keys", useProvider: "Use a model of a provider", provider: "Provider", providerKey: "API key", store: "Store", removeKey: "Remove",
  providerHelp: "The key is stored in a file on this machine that only you can read. It is sent to the provider only, and not shown again.",
  keyStored: "Stored the key of {provider}.", nameModel: "Now choose one of its models under your message: type “{provider}:” in the field of the model.",
  keyRemoved: "Removed the key of {provider}.", keyIsStored: "stored", keyInVariable: "from {variable}", removeKeyOf: "Remove the key of {provider}", removeKeyTitle: "Remove the key of {provider}?",

  licences: "Parts and licences", licencesHelp: "Longtalk is under the Apache-2.0 licence. Its page contains these parts of others, unmodified.",
  cutOff: "This answer was cut off.", goOn: "Go on",

  // Views
  inspector: "What the model saw", noTurn: "No turn has run on this branch yet.", forksAt: "forks after {shared},", more: "More",
  loading: "Loading…", nothingSent: "Nothing is stored about this turn's request.", tab_context: "Context", tab_request: "Request",
  tab_recall: "Recall", tab_compaction: "Compaction", sentTokens: "{total} tokens were sent to {model}",
  reported: "The provider counted {input} tokens in, {cached} of them from its cache, and {output} out.", costs: "This turn cost {cost}.", costUnknown: "Its cost is unknown: no price is known for the model.",
  part_system: "System text, tools and framing", part_brief: "Brief", part_outline: "Outlines", part_summary: "Summary",
  part_history: "Earlier messages", part_recall: "Recalled messages", part_message: "New message", part_reserved: "Reserved for the answer", part_free: "Free",
  everyEntry: "Every message, and why", ofLimit: "{total} of {limit} tokens, above which the policy shortens", ofTheWindow: "{total} of {window} tokens that the model takes",
  policyRules: "The policy {policy} shortens the next request when: {rules}.", policyOnly: "The policy was {policy}.",
  turnOf: "Turn {number} of {all}", earlierTurn: "Earlier turn", laterTurn: "Later turn", findSeen: "Was it sent? Words of a message", noHit: "No message has these words.",
  role_user: "You", role_assistant: "Answer", role_tool: "Tool", role_event: "Note", role_system: "System", role_developer: "System",
  inChat: "in the chat", inChatOf: "Message {number} in the chat", lastOf: "The last {shown} of {all}:",
  entriesFromTo: "Messages {first} to {last}", entryAt: "Message {first}", tokenCount: "{count} tokens",
  verdict_sent: "sent", verdict_held: "held by the provider", verdict_recalled: "recalled", verdict_summarised: "summarised",
  verdict_handed_out: "handed to the app", verdict_left_out: "left out", verdict_later: "not yet said",
  sharedWithBefore: "The first {shared} of {all} characters are those of the request before.",
  readFromCache: "The provider read {cached} of {input} tokens from its cache.", newFromHere: "new from here on",
  readNothing: "The provider read nothing from its cache.", cacheUnknown: "The provider did not report what it read from its cache.", cachedUntilHere: "the cached prefix ends about here: {cached} tokens",
  score: "score {score}", sharedWords: "shares: {words}", neighbour: "next to a match", recallHelp: "Older messages that were quoted again because they fit the new one, best first.", nothingRecalled: "Nothing was recalled for this message.",
  compactedAt: "After message {start}", compactedBecause: "Because of: {reason}. Requests then began with {tokens} tokens.",
  wasRemoved: "What was removed:", wasKept: "What stayed:", whereItHappened: "Show it in the chat", standsInPlace: "In place of what was removed stands:", nothingCompacted: "Nothing has been compacted on this branch.",
  openSample: "Open a sample conversation",
  sampleHelp: "New here? Five months of violin lessons show what is sent, remembered and paid. It is marked as a sample; no model is needed.",

  replacedHere: "From here on, older messages were replaced", moreOfIt: "What was removed, and why",
  replacedBy: "The model reads this text in their place.", replacedByNothing: "They were left out, without a summary.",
  replacedWhy: "Reason: {reason}. Requests then began with {tokens} tokens.",

  // Memory
  views: "Views of this conversation", chatView: "Chat", memoryView: "Memory", memoryTitle: "What is remembered",
  memoryHelp: "The model reads these lines with each request. Click one to correct it. A revoked line can't come back.",
  noBrief: "This conversation keeps no memory: the whole history is sent, or its latest part. Choose the policy Memory() with your next message to keep a brief.",
  emptyBrief: "Nothing is remembered yet. Lines appear as the conversation goes on, or add one yourself.",
  removedLines: "Removed lines ({count})", putBack: "Put back", putBackLine: "Put back “{text}”", briefAsSent: "The brief as it is sent", stated: "Stated {day}", seen: "last {day}",
  source: "source", sourceOf: "Source of “{text}”", byHand: "added by hand", editLine: "Edit “{text}”", revokeLine: "Revoke “{text}”",
  revokeHelp: "Remove it for good: the model can't add it again", revokeTitle: "Revoke “{text}”?", revokeSure: "The model can't add it again.",
  lineField: "Field", lineText: "Something to remember", addLine: "Add", replacesLine: "This field holds one line: the new one replaces it.",
  pinnedTitle: "Pinned messages", pinnedHelp: "Sent with every request.", leftOutTitle: "Messages left out", noneMarked: "None so far: choose it under a message in the chat.",
  leftOutHelp: "Never sent, but kept in the history.", earlierMessage: "An earlier message", topics: "Topics over time", noWords: "Small talk",
  messageCount: "{count} messages", changes: "History of changes ({count})", added: "added", removed: "removed", revoked: "revoked",

  // Money
  moneyView: "Costs", moneyOne: "What this conversation costs", moneyAll: "Costs of all conversations", costsOfAll: "All costs", turns: "Turns", turn: "Turn", day: "Day",
  promptTokens: "Prompt tokens", answerTokens: "Answer tokens", cachedShare: "From cache", cost: "Cost", fromCache: "from the cache", sent: "sent", paid: "paid", unknown: "unknown",
  plainReplay: "Everything sent", cachedReplay: "Everything sent, cached", uncachedReplay: "Everything sent, not from a cache", inSum: "In sum:", atTheEnd: "At the end:",
  replayHelp: "“Everything sent” is what the same turns would have cost with the whole history in each request: without a cache, and with the cache of the provider. An estimate.",
  costSoFar: "Cost so far, turn by turn", tokensSoFar: "Prompt tokens so far, turn by turn", turnNumber: "Turn {number}:", yours: "in use", usePolicy: "Use", usePolicyOf: "Use {policy} for the next messages",
  noPrices: "No price is known for this model, so only tokens are shown.", noTurns: "No turn has run yet. Costs appear with the first answer.",
  unpriced: "The cost of {count} turns is unknown and not included.", numbers: "The numbers", moreRows: "Show more",
  compare: "Compare policies", comparing: "Counting…", compareHelp: "What this conversation would have cost. Nothing is sent to a model.",
  cheapest: "Cheapest for you: {policy}, saves {percent} % against sending everything.", fewest: "Fewest tokens: {policy}, saves {percent} % against sending everything.",
  cheapestMemory: "Of those that remember what they leave out, {policy} is cheapest and saves {percent} %.",
  keepAllBest: "Sending everything is cheapest so far. That changes as the conversation grows.",
  forgets: "KeepLast and TokenBudget forget what they leave out; Summarize, Economy and Memory keep a summary or a brief of it.",
  receipts: "Receipts of compactions", receiptsHelp: "Each compaction costs something once and makes later requests shorter.",
  netSaved: "In sum they have saved {amount}.", netLost: "In sum they have cost {amount} more than they saved so far.",
  tokensBefore: "Tokens before", tokensAfter: "after", predicted: "Predicted", actual: "Actual", savedSoFar: "Saved",
};

export function t(key, values = {}) {
  return strings[key].replace(/\{(\w+)\}/g, (_, name) => String(values[name] ?? ""));
}
