// The public HTTP API. URLs are relative to this page, so that it works wherever the server is
// mounted. A token is kept in this tab only and sent in a header: it never becomes part of a URL.

// A chunk is in memory as a whole.
const CHUNK_BYTES = 1 << 20;
const TOKEN = "tailrace-token";
const ROOT = new URL("../../", location.href.split("#")[0]);

export class Problem extends Error {
  constructor(status, title, detail, code = "") {
    super(detail || title);
    Object.assign(this, { status, title, detail, code });
  }
}

export const token = {
  get: () => sessionStorage.getItem(TOKEN) ?? "",
  set: (value) => sessionStorage.setItem(TOKEN, value),
  clear: () => sessionStorage.removeItem(TOKEN),
};

async function problemOf(response) {
  let body = {};
  try {
    body = await response.json();
  } catch {
    /* not problem+json: a proxy's response, for example */
  }
  const title =
    typeof body.title === "string" ? body.title : `${response.status} ${response.statusText}`;
  const detail = typeof body.detail === "string" ? body.detail : "The server gave no details.";
  return new Problem(response.status, title, detail, String(body.code ?? ""));
}

export async function call(method, path, { headers = {}, body, signal } = {}) {
  const sent = new Headers(headers);
  if (token.get()) sent.set("Authorization", `Bearer ${token.get()}`);
  let response;
  try {
    response = await fetch(new URL(path, ROOT), {
      method,
      headers: sent,
      body,
      signal,
      cache: "no-store",
      credentials: "same-origin",
      redirect: "follow",
    });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Problem(
      0,
      "The server cannot be reached",
      "It may be stopping or restarting, or the network is down.",
    );
  }
  if (response.ok) return response;
  const problem = await problemOf(response);
  // Denied to anonymous requests: a token may be allowed.
  if (problem.status === 403 && !token.get()) problem.status = 401;
  throw problem;
}

const json = async (path, options) => (await call("GET", path, options)).json();

function query(values) {
  const given = Object.entries(values).filter(
    ([, value]) => value !== "" && value !== undefined && value !== null,
  );
  return new URLSearchParams(given).toString();
}

export const listBuckets = (prefix, after, limit, signal) =>
  json(`-/buckets?${query({ prefix, after, limit })}`, { signal });
export const listSubscriptions = (limit, signal) => json(`-/subscriptions?${query({ limit })}`, { signal });
export const metrics = async (signal) => (await call("GET", "-/metrics", { signal })).text();
export const createBucket = (bucket) => call("PUT", segment(bucket));
export const deleteBucket = (bucket) => call("DELETE", segment(bucket));

export function listStreams(bucket, prefix, after, limit, signal) {
  const where = bucket === null ? "-/paths" : `${segment(bucket)}/streams`;
  return json(`${where}?${query({ prefix, after, limit })}`, { signal });
}

// Names come from links that anyone can make, and requests carry the token. A segment such as ".."
// would lead to another stream, or outside of this mount.
const INVALID_SEGMENTS = ["", ".", ".."];

function segment(text) {
  if (INVALID_SEGMENTS.includes(text)) {
    throw new Problem(0, "Invalid name", "A name cannot be empty, “.” or “..”.");
  }
  try {
    return encodeURIComponent(text);
  } catch {
    throw new Problem(0, "Invalid name", "It has an unpaired surrogate.");
  }
}

// One stream. `bucket` is null on the base surface.
export class Stream {
  constructor(bucket, id) {
    this.bucket = bucket;
    this.id = id;
  }

  get path() {
    return this.bucket === null
      ? `v1/stream/${this.id.split("/").map(segment).join("/")}`
      : `${segment(this.bucket)}/${segment(this.id)}`;
  }

  get reference() {
    return this.bucket === null ? { path: this.id } : { bucket: this.bucket, stream: this.id };
  }

  about(after, signal) {
    return json(`-/about?${query({ ...this.reference, after, limit: 100 })}`, { signal });
  }

  create(type, ttl) {
    const headers = { "Content-Type": type };
    if (ttl) headers["Stream-TTL"] = ttl;
    return call("PUT", this.path, { headers });
  }

  append(body, type) {
    return call("POST", this.path, { body, headers: { "Content-Type": type } });
  }

  close() {
    return call("POST", this.path, { headers: { "Stream-Closed": "true" } });
  }

  delete() {
    return call("DELETE", this.path);
  }

  publish(offset, body, type) {
    return call("PUT", `${this.path}/snapshot/${offset}`, {
      body,
      headers: { "Content-Type": type },
    });
  }

  async snapshot(offset, signal) {
    return new Uint8Array(
      await (await call("GET", `${this.path}/snapshot/${offset}`, { signal })).arrayBuffer(),
    );
  }

  // Resolves message numbers to offsets.
  async offsets(numbers, signal) {
    const places = numbers.map((message) => ({ ...this.reference, message }));
    const options = {
      body: JSON.stringify({ places }),
      headers: { "Content-Type": "application/json" },
      signal,
    };
    const result = await (await call("POST", "-/offsets", options)).json();
    return result.places.map(({ offset, error }) => {
      if (error) throw new Problem(error.status, "Not found", error.detail, error.code);
      return offset;
    });
  }

  // Reads from one offset to another, in chunks.
  async *read(from, until, signal) {
    let offset = from;
    while (offset !== until) {
      const range = query({ offset, until, bytes_max: CHUNK_BYTES });
      const response = await call("GET", `${this.path}?${range}`, { signal });
      yield new Uint8Array(await response.arrayBuffer());
      const next = response.headers.get("Stream-Next-Offset");
      if (next === null || next === offset) return;
      offset = next;
    }
  }

  // Follows by SSE over `fetch`, because `EventSource` cannot send a token in a header.
  live(offset, signal) {
    return call("GET", `${this.path}?${query({ offset, live: "sse" })}`, {
      headers: { Accept: "text/event-stream" },
      signal,
    });
  }
}

export const parseOffset = (offset) => ({
  message: Number(offset.slice(0, 16)),
  byte: Number(offset.slice(17)),
});
