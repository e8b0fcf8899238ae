// Follows a stream's tail: an SSE response over `fetch`, resumed where it ended.

import { Problem } from "./api.js";

const RETRY_MS = [300, 1000, 2000, 5000, 10_000];

// The events of a response as [event, data] pairs, without comments.
async function* events(response) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  let event = "";
  let data = [];
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    rest += value;
    const lines = rest.split(/\r\n|\n|\r(?=[^\n])/);
    rest = lines.pop();
    for (const line of lines) {
      if (line === "") {
        if (data.length || event) yield [event, data.join("\n")];
        event = "";
        data = [];
      } else if (line.startsWith("event:")) event = line.slice(6).trim();
      // Messages are read by offset, exactly; data events only say that there are new ones.
      else if (event === "control" && line.startsWith("data:")) data.push(line.slice(5));
    }
  }
}

// Reports every new tail until it is stopped, the stream is closed or deleted, or access is denied.
export class Follower {
  constructor(stream, { onTail, onState }) {
    this.stream = stream;
    this.onTail = onTail;
    this.onState = onState;
    this.stopped = new AbortController();
  }

  stop() {
    this.stopped.abort();
  }

  async start(offset) {
    let at = offset;
    let failures = 0;
    const { signal } = this.stopped;
    while (!signal.aborted) {
      try {
        const response = await this.stream.live(at, signal);
        this.onState("live");
        // A response that ends without an event counts as a failure, so that the retry waits.
        failures += 1;
        for await (const [event, data] of events(response)) {
          if (event !== "control") continue;
          const control = JSON.parse(data);
          failures = 0;
          at = control.streamNextOffset ?? at;
          if (control.streamDeleted) return this.onState("deleted");
          this.onTail(at, control.streamClosed === true);
          if (control.streamClosed) return this.onState("closed");
        }
      } catch (error) {
        if (signal.aborted) return undefined;
        if (
          error instanceof Problem &&
          error.status >= 400 &&
          error.status < 500 &&
          ![408, 429].includes(error.status)
        ) {
          return this.onState(error.status === 404 ? "deleted" : "refused", error);
        }
        failures += 1;
        this.onState("waiting");
      }
      if (failures) await pause(RETRY_MS[Math.min(failures, RETRY_MS.length) - 1], signal);
    }
    return undefined;
  }
}

function pause(milliseconds, signal) {
  return new Promise((done) => {
    const timer = setTimeout(done, milliseconds);
    signal.addEventListener(
      "abort",
      () => {
        clearTimeout(timer);
        done();
      },
      { once: true },
    );
  });
}
