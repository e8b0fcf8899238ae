// The view of one stream: its properties, its messages, and the actions on it.

import * as api from "./api.js";
import { compose } from "./compose.js";
import { confirmDelete, formDialog, publishSnapshot } from "./dialogs.js";
import { announce, el, empty, errorBox, loading, replace } from "./dom.js";
import { Facts, ProducerTable, isJson, isText } from "./facts.js";
import { Follower } from "./follow.js";
import { name, plural, visibleName } from "./format.js";
import { Messages } from "./messages.js";
import { routes } from "./routes.js";

const REFRESH_MS = 5000;

// Renders the view again from the beginning.
const reload = () => dispatchEvent(new Event("hashchange"));

export class StreamView {
  constructor({ bucket, id, signal }) {
    this.stream = new api.Stream(bucket, id);
    this.signal = signal;
    this.facts = new Facts(this.stream, signal);
    this.producers = new ProducerTable();
    this.actions = el("div", { class: "actions" });
    this.body = el("div", { class: "stack" }, loading());
    const up = bucket === null ? "Base paths" : name(bucket);
    this.element = el(
      "div",
      { class: "view" },
      el(
        "div",
        { class: "heading" },
        el(
          "div",
          { class: "title" },
          el("a", { class: "up", href: routes.list(bucket) }, up),
          el("h1", null, name(id)),
        ),
        el("span", { class: "spacer" }),
        this.actions,
      ),
      this.body,
    );
    this.ready = this.open();
  }

  async open() {
    try {
      this.about = await this.stream.about("", this.signal);
    } catch (error) {
      if (error.name === "AbortError") return;
      if (error.status === 401) throw error;
      replace(
        this.body,
        error.status === 404
          ? empty(
              "Stream not found",
              error.detail,
              el(
                "a",
                { class: "button", href: routes.list(this.stream.bucket) },
                "Back to the list",
              ),
            )
          : errorBox(error, () => this.open()),
      );
      return;
    }
    const { about } = this;
    this.messages = new Messages(this.stream, {
      isJson: isJson(about.content_type),
      earliest: api.parseOffset(about.earliest_offset),
      tail: api.parseOffset(about.next_offset),
      signal: this.signal,
    });
    this.composer = compose({
      isJson: isJson(about.content_type),
      isText: isText(about.content_type),
      append: async (body) => {
        await this.stream.append(body, about.content_type);
      },
    });
    replace(
      this.body,
      this.facts.element,
      this.messages.element,
      this.composer.element,
      this.producers.element,
    );
    this.draw();
    this.follow();
    const timer = setInterval(() => this.tick(), 1000);
    this.signal.addEventListener("abort", () => clearInterval(timer));
    const last = this.messages.tail.message;
    await this.messages.show(last - 50);
  }

  follow() {
    if (this.about.closed) {
      this.messages.setStatus("Closed", "off");
      return;
    }
    this.messages.setStatus("Connecting", "busy");
    const states = {
      live: ["Live", "good"],
      waiting: ["Reconnecting", "busy"],
      closed: ["Closed", "off"],
      deleted: ["Deleted", "bad"],
      refused: ["Not live", "bad"],
    };
    this.follower = new Follower(this.stream, {
      onTail: (offset) => {
        this.messages.grow(api.parseOffset(offset));
        this.stale = true;
      },
      onState: (state) => {
        this.messages.setStatus(...states[state]);
        if (state === "closed" || state === "deleted" || state === "refused") this.refresh();
      },
    });
    this.signal.addEventListener("abort", () => this.follower.stop());
    this.follower.start(this.about.next_offset);
  }

  tick() {
    if (document.hidden) return;
    this.ticks = (this.ticks ?? 0) + 1000;
    this.facts.tick();
    if (this.ticks >= REFRESH_MS || this.stale) this.refresh();
  }

  async refresh() {
    this.ticks = 0;
    this.stale = false;
    try {
      const about = await this.stream.about("", this.signal);
      // The stream was deleted and created again: it is another stream.
      if (about.created_at_ms !== this.about.created_at_ms) {
        reload();
        return;
      }
      this.about = about;
      this.messages.grow(
        api.parseOffset(about.next_offset),
        api.parseOffset(about.earliest_offset),
      );
      this.messages.refresh();
      this.draw();
    } catch (error) {
      if (error.status === 401) reload();
      if (error.status === 404 && !this.gone) {
        this.gone = true;
        announce("The stream was deleted.");
        replace(this.actions);
        this.composer.element.remove();
        this.body.prepend(
          el(
            "div",
            { class: "notice bad", role: "alert" },
            el("strong", null, "This stream no longer exists"),
            el("p", null, "It was deleted or has expired. The page shows what was read before."),
          ),
        );
      }
    }
  }

  draw() {
    if (this.gone) return;
    this.facts.update(this.about);
    this.producers.update(this.about);
    this.drawActions();
  }

  // -- actions ----------------------------------------------------------------------------------

  drawActions() {
    const { about, stream } = this;
    if (this.composer.element.hidden !== about.closed) this.composer.element.hidden = about.closed;
    const state = `${about.closed}`;
    // Not drawn again unless something changed, so that a button keeps its focus.
    if (this.actions.dataset.state === state) return;
    this.actions.dataset.state = state;
    replace(
      this.actions,
      stream.bucket !== null &&
        el("button", { type: "button", onclick: () => this.publish() }, "Snapshot"),
      !about.closed && el("button", { type: "button", onclick: () => this.close() }, "Close"),
      el(
        "button",
        { type: "button", class: "danger-text", onclick: () => this.remove() },
        "Delete",
      ),
    );
  }

  close() {
    formDialog({
      title: "Close this stream?",
      body: [
        el("p", null, name(this.stream.id)),
        el(
          "p",
          null,
          "A closed stream accepts no more appends. It can still be read. This cannot be undone.",
        ),
      ],
      label: "Close stream",
      danger: true,
      action: async () => {
        await this.stream.close();
        await this.refresh();
      },
    });
  }

  publish() {
    const tail = api.parseOffset(this.about.next_offset).message;
    const earliest = api.parseOffset(this.about.earliest_offset).message;
    publishSnapshot({
      earliest,
      tail,
      action: async (message, content, type) => {
        const [offset] = await this.stream.offsets([message], this.signal);
        await this.stream.publish(offset, content, type);
        await this.refresh();
        await this.messages.show(Math.max(this.messages.first, this.messages.earliest.message));
      },
    });
  }

  remove() {
    const messages = plural(api.parseOffset(this.about.next_offset).message, "message");
    const where = visibleName(this.stream.bucket ?? "the base paths");
    confirmDelete({
      what: "stream",
      itemName: this.stream.id,
      warning: `${messages} of ${where} will be deleted permanently.`,
      action: async () => {
        this.gone = true;
        try {
          await this.stream.delete();
        } catch (error) {
          this.gone = false;
          throw error;
        }
        location.hash = routes.list(this.stream.bucket);
      },
    });
  }
}
