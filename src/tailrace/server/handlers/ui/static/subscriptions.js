// The subscriptions of all surfaces: their pending streams, status and last error, every two seconds.

import * as api from "./api.js";
import { el, empty, errorBox, loading, replace } from "./dom.js";
import { count, name, plural, visible } from "./format.js";

const EVERY_MS = 2000;
const LIMIT = 500;

// What it matches, and whom it wakes.
function about({ bucket_id: bucket, pattern, webhook, wake_stream: wakes, description }) {
  const parts = [bucket === null ? "base paths" : `bucket ${bucket}`];
  if (pattern) parts.push(`pattern ${pattern}`);
  parts.push(webhook ? `webhook ${webhook.url}` : `wake stream ${wakes}`);
  if (description) parts.push(description);
  return parts.join(" · ");
}

function row(subscription) {
  const failed = subscription.status !== "active";
  const holder = subscription.holder ? `held by ${subscription.holder}` : "";
  return el(
    "li",
    { class: "subscription" },
    el(
      "div",
      { class: "subscription-row" },
      name(subscription.id),
      el("span", { class: `pill ${failed ? "bad" : "good"}` }, subscription.status),
      el("span", { class: "type" }, subscription.type),
      el(
        "span",
        { class: "amount", title: plural(subscription.pending_streams, "stream") + " with work" },
        count(subscription.pending_streams),
      ),
    ),
    el("p", { class: "hint" }, visible(about(subscription))),
    holder && el("p", { class: "hint" }, visible(holder)),
    subscription.last_error &&
      el(
        "p",
        { class: "notice bad" },
        visible(subscription.last_error),
        subscription.next_attempt_at && ` – next attempt: ${subscription.next_attempt_at}`,
      ),
  );
}

export function subscriptions(signal) {
  const list = el("ul", { class: "streams" }, el("li", null, loading()));
  const notice = el("div");
  const head = el(
    "div",
    { class: "subscription-row head", "aria-hidden": "true", hidden: true },
    ["Name", "Status", "Type", "Pending"].map((title) => el("span", null, title)),
  );
  const element = el(
    "div",
    { class: "view" },
    el(
      "div",
      { class: "heading" },
      el("h1", null, "Subscriptions"),
      el("p", { class: "hint" }, "Pending is the number of streams with work that is not acknowledged."),
    ),
    notice,
    el("div", { class: "card" }, head, list),
  );

  async function tick() {
    if (signal.aborted) return;
    if (!document.hidden) {
      try {
        const page = await api.listSubscriptions(LIMIT, signal);
        head.hidden = !page.subscriptions.length;
        replace(
          list,
          page.subscriptions.map(row),
          !page.subscriptions.length &&
            el("li", null, empty("No subscriptions", "Subscriptions wake workers when streams grow.")),
          page.has_more && el("li", { class: "hint" }, `The first ${LIMIT} are shown.`),
        );
        replace(notice);
      } catch (error) {
        if (error.name === "AbortError") return;
        if (error.status === 401) throw error;
        replace(notice, errorBox(error));
        if (error.status >= 400 && error.status < 500) return;
      }
    }
    setTimeout(() => tick().catch(() => {}), EVERY_MS);
  }

  return { element, ready: tick() };
}
