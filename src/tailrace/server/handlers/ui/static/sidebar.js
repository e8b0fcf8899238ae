// The list of buckets. The base surface is its first entry.

import * as api from "./api.js";
import { arrowKeys, debounce, el, empty, errorBox, loading, replace } from "./dom.js";
import { count, name, plural } from "./format.js";
import { createBucket } from "./dialogs.js";
import { routes } from "./routes.js";

const PAGE = 100;

export class Sidebar {
  constructor(root, { onError }) {
    this.onError = onError;
    this.prefix = "";
    this.list = el("ul", { class: "buckets" });
    arrowKeys(this.list, "a");
    this.search = el("input", {
      type: "search",
      placeholder: "Find a bucket",
      "aria-label": "Find a bucket by the prefix of its name",
      spellcheck: "false",
      autocomplete: "off",
    });
    const search = debounce(150, () => {
      this.prefix = this.search.value.trim();
      this.load();
    });
    this.search.addEventListener("input", search);
    this.search.addEventListener("keydown", (event) => {
      if (event.key === "ArrowDown") {
        event.preventDefault();
        this.list.querySelector("a")?.focus();
      }
    });
    this.base = el(
      "a",
      { class: "row", href: routes.list(null) },
      el("span", { class: "name" }, "Base paths"),
      el("span", { class: "side" }, "/v1/stream/"),
    );
    this.more = el(
      "button",
      { type: "button", class: "small", hidden: true, onclick: () => this.load(true) },
      "More",
    );
    replace(
      root,
      el(
        "div",
        { class: "tools" },
        el("h2", null, "Buckets"),
        el("span", { class: "spacer" }),
        el(
          "button",
          {
            type: "button",
            class: "small",
            id: "new-bucket",
            onclick: () => createBucket((bucket) => this.create(bucket)),
          },
          "New bucket",
        ),
      ),
      this.search,
      this.list,
      this.more,
    );
  }

  async create(bucket) {
    await api.createBucket(bucket);
    await this.load();
    location.hash = routes.list(bucket);
  }

  mark(bucket) {
    this.current = bucket;
    for (const link of this.list.querySelectorAll("a")) {
      if (link.bucket === bucket) link.setAttribute("aria-current", "page");
      else link.removeAttribute("aria-current");
    }
  }

  clear() {
    replace(this.list);
    this.more.hidden = true;
  }

  async load(more = false) {
    const turn = (this.turn = (this.turn ?? 0) + 1);
    if (!this.list.children.length) replace(this.list, el("li", null, loading()));
    try {
      const page = await api.listBuckets(this.prefix, more ? this.cursor : "", PAGE);
      if (turn !== this.turn) return;
      const items = page.buckets.map((bucket) => this.item(bucket));
      if (!more) {
        this.base.bucket = null;
        replace(
          this.list,
          !this.prefix && el("li", null, this.base),
          items,
          !items.length &&
            el(
              "li",
              null,
              this.prefix
                ? empty("Nothing found", "No bucket name begins with this text.")
                : empty("No buckets yet", "A bucket holds streams. Create the first one."),
            ),
        );
      } else this.list.append(...items);
      this.cursor = page.next_cursor;
      this.more.hidden = !page.has_more;
      this.mark(this.current);
    } catch (error) {
      if (turn !== this.turn) return;
      replace(
        this.list,
        error.status === 401
          ? null
          : el(
              "li",
              null,
              errorBox(error, () => this.load()),
            ),
      );
      this.onError(error);
    }
  }

  item({ bucket_id: bucket, streams }) {
    const link = el(
      "a",
      { class: "row", href: routes.list(bucket) },
      name(bucket),
      el("span", { class: "side", title: plural(streams, "stream") }, count(streams)),
    );
    link.bucket = bucket;
    return el("li", null, link);
  }
}
