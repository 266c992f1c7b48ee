// Where branches of a conversation part, as the switcher of versions needs it.
function chain(branches, name) {
  const steps = new Map();
  let limit = Infinity;
  for (let at = branches.get(name); at; at = branches.get(at.source)) {
    steps.set(at.name, Math.min(limit, at.entries));
    limit = Math.min(limit, at.shared);
  }
  return steps;
}

function countShared(branches, a, b) {
  const other = chain(branches, b);
  for (const [name, limit] of chain(branches, a)) if (other.has(name)) return Math.min(limit, other.get(name));
  return 0;
}

// Return a map: position of an entry -> names of the branches with other versions of it, `current` among them.
export function findVersions(list, current) {
  const branches = new Map(list.map((each) => [each.name, each]));
  const found = new Map();
  const size = branches.get(current)?.entries ?? 0;
  for (const { name, entries } of list) {
    if (name === current) continue;
    const shared = countShared(branches, current, name);
    if (shared >= size || shared >= entries) continue;
    const here = found.get(shared) || [current];
    if (here.slice(1).every((each) => countShared(branches, each, name) <= shared)) here.push(name);
    found.set(shared, here);
  }
  const order = list.map((each) => each.name);
  for (const names of found.values()) names.sort((a, b) => order.indexOf(a) - order.indexOf(b));
  return found;
}
