// The current view is in the hash of the URL, so that reload and the back button work.

const part = encodeURIComponent;

export const routes = {
  list: (bucket, prefix = "") =>
    (bucket === null ? "#/p" : `#/b/${part(bucket)}`) + (prefix ? `?prefix=${part(prefix)}` : ""),
  stream: (bucket, id) => (bucket === null ? `#/p/${part(id)}` : `#/b/${part(bucket)}/${part(id)}`),
};

// Parses a hash; the view is `home` if the hash is unknown.
export function parse(hash) {
  const [path, query] = hash.replace(/^#/, "").split("?");
  let parts;
  try {
    parts = path.split("/").slice(1).map(decodeURIComponent);
  } catch {
    return { view: "home" };
  }
  const prefix = new URLSearchParams(query ?? "").get("prefix") ?? "";
  const [surface, first, second] = parts;
  if (surface === "dashboard") return { view: "dashboard" };
  if (surface === "subscriptions") return { view: "subscriptions" };
  if (surface === "p")
    return first
      ? { view: "stream", bucket: null, id: first }
      : { view: "list", bucket: null, prefix };
  if (surface === "b" && first)
    return second
      ? { view: "stream", bucket: first, id: second }
      : { view: "list", bucket: first, prefix };
  return { view: "home" };
}
