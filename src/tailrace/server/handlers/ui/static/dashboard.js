// The dashboard: charts of the server's metrics, polled every two seconds.

import * as api from "./api.js";
import { Chart } from "./chart.js";
import { el, errorBox, replace } from "./dom.js";
import { bytes, short } from "./format.js";
import { parse, quantile, sum } from "./metrics.js";

const EVERY_MS = 2000;
const POINTS = 90;
const APPEND = "tailrace_append_seconds";
const SYNC = "tailrace_commit_sync_seconds";

const milliseconds = (value) =>
  value >= 100 ? `${Math.round(value)} ms` : `${value.toFixed(value >= 10 ? 1 : 2)} ms`;

export function dashboard(signal) {
  const charts = {
    messages: new Chart("Messages appended", ["messages"], (value) => `${short(value)}/s`, {
      points: POINTS,
    }),
    bytes: new Chart("Bytes appended", ["bytes"], (value) => `${bytes(value)}/s`, {
      points: POINTS,
      binary: true,
    }),
    requests: new Chart("Requests", ["all", "errors"], (value) => `${short(value)}/s`, {
      points: POINTS,
    }),
    readers: new Chart("Live readers", ["all", "event streams", "long-polls"], short, {
      points: POINTS,
    }),
    append: new Chart("Append latency", ["mean", "99th percentile"], milliseconds, {
      points: POINTS,
    }),
    sync: new Chart("Fsync time", ["mean", "99th percentile"], milliseconds, {
      points: POINTS,
    }),
  };
  const notice = el("div");
  const page = el(
    "div",
    { class: "view" },
    el(
      "div",
      { class: "heading" },
      el("h1", null, "Dashboard"),
      el("p", { class: "hint" }, "The last three minutes, while this page was open."),
    ),
    notice,
    el(
      "div",
      { class: "charts" },
      Object.values(charts).map(({ element }) => element),
    ),
  );
  let before = null;

  function show(samples, at) {
    const readers = (kind) =>
      sum(samples, "tailrace_live_readers", (labels) => !kind || labels.kind === kind);
    charts.readers.add(readers(), readers("sse"), readers("long-poll"));
    if (before !== null) {
      const seconds = (at - before.at) / 1000;
      // A counter that decreased belongs to a restarted process.
      const increase = (name, allow) =>
        Math.max(0, sum(samples, name, allow) - sum(before.samples, name, allow));
      charts.messages.add(increase("tailrace_appended_messages_total") / seconds);
      charts.bytes.add(increase("tailrace_appended_bytes_total") / seconds);
      charts.requests.add(
        increase("tailrace_requests_total") / seconds,
        increase("tailrace_requests_total", ({ status }) => Number(status) >= 400) / seconds,
      );
      for (const [chart, name] of [
        [charts.append, APPEND],
        [charts.sync, SYNC],
      ]) {
        const times = increase(`${name}_count`);
        const p99 = quantile(before.samples, samples, name, 0.99);
        chart.add(
          times ? (increase(`${name}_sum`) / times) * 1000 : null,
          p99 === null ? null : p99 * 1000,
        );
      }
    }
    before = { samples, at };
  }

  async function tick() {
    if (signal.aborted) return;
    if (!document.hidden) {
      try {
        const samples = parse(await api.metrics(signal));
        show(samples, performance.now());
        replace(notice);
      } catch (error) {
        if (error.name === "AbortError") return;
        if (error.status === 401) throw error;
        before = null;
        const detail =
          error.status === 403
            ? "This token may not read /-/metrics. It needs a grant of admin on that path."
            : error.detail;
        replace(notice, errorBox({ title: error.title, detail }));
        // Do not retry a request that was rejected.
        if (error.status >= 400 && error.status < 500) return;
      }
    }
    setTimeout(() => tick().catch(() => {}), EVERY_MS);
  }

  return { element: page, ready: tick() };
}
