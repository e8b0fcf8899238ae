// Parses the Prometheus text format.

const LINE = /^([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{(.*)\})? ([^ ]+)(?: [0-9-]+)?$/;
const LABEL = /([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\]|\\.)*)",?/g;

// Returns a map from metric names to samples, each with its labels and its value.
export function parse(text) {
  const found = new Map();
  for (const line of text.split("\n")) {
    const match = line.startsWith("#") ? null : LINE.exec(line.trim());
    if (!match) continue;
    const labels = Object.fromEntries(
      [...(match[2] ?? "").matchAll(LABEL)].map(([, name, value]) => [name, value]),
    );
    const value = match[3] === "+Inf" ? Infinity : Number(match[3]);
    if (!found.has(match[1])) found.set(match[1], []);
    found.get(match[1]).push({ labels, value });
  }
  return found;
}

export function sum(samples, name, allow = () => true) {
  return (samples.get(name) ?? [])
    .filter(({ labels }) => allow(labels))
    .reduce((total, { value }) => total + value, 0);
}

// A quantile of the observations between two scrapes, interpolated within histogram buckets.
export function quantile(before, after, name, share) {
  const bounds = (samples) =>
    new Map((samples.get(`${name}_bucket`) ?? []).map(({ labels, value }) => [labels.le, value]));
  const [old, now] = [bounds(before), bounds(after)];
  const increase = [...now]
    .map(([le, value]) => [le === "+Inf" ? Infinity : Number(le), value - (old.get(le) ?? 0)])
    .sort(([a], [b]) => a - b);
  const total = increase.at(-1)?.[1] ?? 0;
  if (!total) return null;
  let [lower, seen] = [0, 0];
  for (const [bound, value] of increase) {
    if (value >= share * total) {
      return bound === Infinity
        ? lower
        : lower + ((bound - lower) * (share * total - seen)) / Math.max(1, value - seen);
    }
    [lower, seen] = [bound, value];
  }
  return lower;
}
