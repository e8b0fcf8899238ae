// Following a stream's tail: an event stream over `fetch`, taken up again where it ended.

import { Problem } from "./api.js";

const RETRY_MS = [300, 1000, 2000, 5000, 10_000];

// The events of a response, as [event, data] each; comments are left out.
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
      // What the messages hold is read by offsets, exactly; events only say that there are some.
      else if (event === "control" && line.startsWith("data:")) data.push(line.slice(5));
    }
  }
}

// Tells of every new tail until it is stopped, or the stream is closed, deleted or refused.
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
        // One that ends without a word counts as failed, or it would be asked for without end.
        failures += 1;
        for await (const [event, data] of events(response)) {
          if (event !== "control") continue;
          const told = JSON.parse(data);
          failures = 0;
          at = told.streamNextOffset ?? at;
          if (told.streamDeleted) return this.onState("deleted");
          this.onTail(at, told.streamClosed === true);
          if (told.streamClosed) return this.onState("closed");
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
