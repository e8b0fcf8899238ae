// The streams of a bucket or of the base surface, in pages, filtered by the prefix of their names.

import * as api from "./api.js";
import { confirmDelete, createStream } from "./dialogs.js";
import { arrowKeys, debounce, el, empty, errorBox, loading, replace } from "./dom.js";
import { bytes, count, moment, name } from "./format.js";
import { routes } from "./routes.js";

const PAGE = 100;

function row(bucket, stream) {
  const messages = api.parseOffset(stream.next_offset).message;
  const open = stream.status === "Open";
  return el(
    "li",
    null,
    el(
      "a",
      { class: "stream-row", href: routes.stream(bucket, stream.stream_id) },
      name(stream.stream_id),
      el("span", { class: `pill ${open ? "good" : "off"}` }, stream.status),
      el("span", { class: "type" }, stream.content_type),
      el("span", { class: "amount" }, count(messages)),
      el("span", { class: "amount" }, bytes(stream.tail_offset)),
      el("span", { class: "when" }, moment(stream.last_write_at_ms)),
    ),
  );
}

export function streamList({ bucket, prefix, signal, onBucketDeleted }) {
  const list = el("ul", { class: "streams" });
  arrowKeys(list, "a");
  const search = el("input", {
    type: "search",
    value: prefix,
    placeholder: "Find by name prefix",
    "aria-label": "Find streams by the prefix of their names",
    spellcheck: "false",
    autocomplete: "off",
    id: "find",
  });
  const back = el(
    "button",
    {
      type: "button",
      onclick: () => {
        cursors.pop();
        load();
      },
    },
    "← Previous",
  );
  const next = el(
    "button",
    {
      type: "button",
      onclick: () => {
        cursors.push(cursor);
        load();
      },
    },
    "Next →",
  );
  const where = el("span", { class: "where" });
  // The cursors of all pages up to this one, for going back.
  let cursors = [""];
  let cursor = "";
  let turn = 0;

  async function load() {
    const mine = (turn += 1);
    if (!list.children.length) replace(list, el("li", null, loading()));
    try {
      const page = await api.listStreams(bucket, search.value, cursors.at(-1), PAGE, signal);
      if (mine !== turn) return;
      cursor = page.next_cursor;
      replace(
        list,
        page.streams.map((stream) => row(bucket, stream)),
        !page.streams.length && el("li", null, nothing()),
      );
      back.disabled = cursors.length === 1;
      next.disabled = !page.has_more;
      foot.hidden = back.disabled && next.disabled;
      where.textContent = `Page ${cursors.length}`;
      head.hidden = !page.streams.length;
      list.scrollTop = 0;
    } catch (error) {
      if (error.name === "AbortError" || mine !== turn) return;
      if (error.status === 401) throw error;
      replace(list, el("li", null, errorBox(error, load)));
      head.hidden = foot.hidden = true;
    }
  }

  function nothing() {
    if (search.value) return empty("Nothing found", "No stream name begins with this text.");
    return empty(
      "No streams yet",
      bucket === null
        ? "Streams of the base protocol, under /v1/stream/, show here."
        : "This bucket is empty.",
    );
  }

  const find = debounce(150, () => {
    cursors = [""];
    history.replaceState(null, "", routes.list(bucket, search.value));
    load();
  });
  search.addEventListener("input", find);
  search.addEventListener("keydown", (event) => {
    if (event.key === "ArrowDown") {
      event.preventDefault();
      list.querySelector("a")?.focus();
    }
  });

  async function create(id, type, ttl) {
    await new api.Stream(bucket, id).create(type, ttl);
    location.hash = routes.stream(bucket, id);
  }

  const remove = () =>
    confirmDelete({
      what: "bucket",
      itemName: bucket,
      warning: "Only an empty bucket can be deleted.",
      action: async () => {
        await api.deleteBucket(bucket);
        onBucketDeleted();
      },
    });
  const foot = el("div", { class: "tools foot", hidden: true }, back, where, next);
  const head = el(
    "div",
    { class: "stream-row head", "aria-hidden": "true", hidden: true },
    ["Name", "Status", "Type", "Messages", "Size", "Last write"].map((title) =>
      el("span", null, title),
    ),
  );
  const element = el(
    "div",
    { class: "view" },
    el(
      "div",
      { class: "heading" },
      el(
        "div",
        null,
        el("a", { class: "up", href: "#/" }, "Buckets"),
        el("h1", null, bucket === null ? "Base paths" : name(bucket)),
      ),
      el("span", { class: "spacer" }),
      el(
        "div",
        { class: "actions" },
        bucket !== null &&
          el("button", { type: "button", class: "danger-text", onclick: remove }, "Delete bucket"),
        el(
          "button",
          {
            type: "button",
            class: "primary",
            id: "new-stream",
            onclick: () => createStream(bucket !== null, create),
          },
          "New stream",
        ),
      ),
    ),
    el("div", { class: "card" }, el("div", { class: "tools" }, search), head, list, foot),
  );
  return { element, ready: load() };
}
