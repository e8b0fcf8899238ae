// The list of messages: one page at a time, forwards and backwards, and new messages as they arrive.
// The number of messages on the page is limited, however long the stream and however fast it grows.

import { VIEWS, contentBox } from "./content.js";
import { announce, el, empty, errorBox, loading, replace, throttle } from "./dom.js";
import { bytes, count, plural } from "./format.js";
import { contents, range } from "./reading.js";

const PAGE = 50;
const KEPT_MAX = 300;
const GAP_MAX = 200;
const VIEW = "tailrace-view";
const LABELS = { auto: "Auto", json: "JSON", text: "Text", hex: "Hex" };

export class Messages {
  constructor(stream, { isJson, earliest, tail, signal }) {
    Object.assign(this, { stream, isJson, earliest, tail, signal });
    this.first = 0;
    this.last = 0;
    this.paused = false;
    // Whether new messages are shown as they arrive: not while paused, nor on an older page.
    this.follow = true;
    // Whether the list stays scrolled to its end.
    this.stick = true;
    this.busy = false;
    this.view = sessionStorage.getItem(VIEW) ?? "auto";
    if (!VIEWS.includes(this.view)) this.view = "auto";
    this.list = el("ol", {
      class: "messages",
      tabindex: "0",
      "aria-label": "Messages",
      onscroll: () => this.scrolled(),
    });
    this.unannounced = 0;
    this.announceNew = throttle(1000, () => {
      announce(plural(this.unannounced, "new message"));
      this.unannounced = 0;
    });
    this.pull = throttle(40, () => this.catchUp());
    this.element = this.build();
  }

  build() {
    const move = (label, action, title) =>
      el(
        "button",
        { type: "button", title, "aria-label": title, onclick: () => this.go(action) },
        label,
      );
    this.moves = {
      first: move("⇤", () => this.earliest.message, "First messages"),
      older: move("← Older", () => this.first - PAGE, "Older messages"),
      newer: move("Newer →", () => this.last, "Newer messages"),
      newest: move("⇥", () => this.tail.message - PAGE, "Newest messages"),
    };
    this.where = el("span", { class: "where" });
    this.status = el("span", { class: "pill" }, "…");
    this.pauseButton = el(
      "button",
      { type: "button", "aria-pressed": "false", onclick: () => this.setPaused(!this.paused) },
      "Pause",
    );
    this.news = el("button", {
      type: "button",
      class: "news",
      hidden: true,
      onclick: () => this.toNewest(),
    });
    const views = el(
      "div",
      { class: "segments", role: "group", "aria-label": "Show messages as" },
      VIEWS.map((view) =>
        el(
          "button",
          { type: "button", "data-view": view, onclick: () => this.setView(view) },
          LABELS[view],
        ),
      ),
    );
    this.views = views;
    this.markView();
    const jump = el("input", {
      type: "text",
      inputmode: "numeric",
      pattern: "[0-9]*",
      size: "8",
      placeholder: "Number",
      "aria-label": "Go to message number",
    });
    const form = el(
      "form",
      {
        class: "jump",
        onsubmit: (event) => {
          event.preventDefault();
          this.jump(jump.value);
        },
      },
      jump,
      el("button", { type: "submit" }, "Go to"),
    );
    return el(
      "section",
      { class: "card pane", "aria-label": "Messages" },
      el(
        "div",
        { class: "tools" },
        el("h2", null, "Messages"),
        this.status,
        this.pauseButton,
        el("span", { class: "spacer" }),
        views,
      ),
      el("div", { class: "list-wrap" }, this.list, this.news),
      (this.foot = el(
        "div",
        { class: "tools foot" },
        el("div", { class: "moves" }, Object.values(this.moves)),
        this.where,
        el("span", { class: "spacer" }),
        form,
      )),
    );
  }

  // -- controls ---------------------------------------------------------------------------------

  setView(view) {
    this.view = view;
    sessionStorage.setItem(VIEW, view);
    this.markView();
    for (const item of this.list.querySelectorAll("li")) item.redraw?.();
  }

  markView() {
    for (const button of this.views.children)
      button.setAttribute("aria-pressed", String(button.dataset.view === this.view));
  }

  setPaused(paused) {
    this.paused = paused;
    this.pauseButton.textContent = paused ? "Resume" : "Pause";
    this.pauseButton.setAttribute("aria-pressed", String(paused));
    if (paused) {
      this.follow = false;
      this.refresh();
    } else this.toNewest();
  }

  toNewest() {
    if (this.paused) return this.setPaused(false);
    this.stick = true;
    this.scrollDown();
    if (this.tail.message - this.last > GAP_MAX) return this.go(() => this.tail.message - PAGE);
    this.follow = true;
    return this.catchUp();
  }

  jump(text) {
    const number = Number(text.trim());
    if (text.trim() && Number.isInteger(number)) this.go(() => number);
  }

  go(from) {
    const first = Math.max(this.earliest.message, Math.min(from(), this.tail.message - 1));
    return this.show(first);
  }

  // -- loading ----------------------------------------------------------------------------------

  async show(from) {
    const first = Math.max(this.earliest.message, from);
    const turn = (this.turn = (this.turn ?? 0) + 1);
    this.busy = true;
    if (!this.list.children.length) replace(this.list, el("li", { class: "plain" }, loading()));
    try {
      const end = Math.min(first + PAGE, this.tail.message);
      const { messages, last } = await range(this.stream, first, end, this.isJson, this.signal);
      if (turn !== this.turn || this.signal.aborted) return;
      this.first = first;
      this.last = last;
      replace(
        this.list,
        messages.map((message) => this.item(message)),
      );
      this.stick = this.last >= end && end >= this.tail.message;
      this.follow = this.stick && !this.paused;
      if (this.stick) this.scrollDown();
      else this.list.scrollTop = 0;
    } catch (error) {
      if (error.name !== "AbortError" && turn === this.turn)
        replace(
          this.list,
          el(
            "li",
            { class: "plain" },
            errorBox(error, () => this.show(from)),
          ),
        );
    } finally {
      if (turn === this.turn) {
        this.busy = false;
        this.refresh();
        if (this.follow) this.pull();
      }
    }
  }

  item(message) {
    const body = el("div");
    const item = el(
      "li",
      { "data-number": message.number },
      el(
        "div",
        { class: "message-head" },
        el("span", { class: "number" }, `#${count(message.number)}`),
        el("span", { class: "size" }, bytes(message.size)),
      ),
      body,
    );
    const draw = (content) => replace(body, contentBox(content, this.view, this.isJson));
    const load = async () => {
      replace(body, loading());
      try {
        [message.content] = await contents(this.stream, [message], this.isJson, this.signal);
        draw(message.content);
      } catch (error) {
        replace(body, errorBox(error, load));
      }
    };
    item.redraw = () => message.content && draw(message.content);
    if (message.content) item.redraw();
    else
      replace(
        body,
        el(
          "button",
          { type: "button", class: "small", onclick: load },
          `Load this message (${bytes(message.size)})`,
        ),
      );
    return item;
  }

  // -- the tail ---------------------------------------------------------------------------------

  // A new tail, and possibly a new earliest offset.
  grow(tail, earliest) {
    if (earliest && earliest.message > this.earliest.message) this.earliest = earliest;
    if (tail.message <= this.tail.message) return;
    this.tail = tail;
    if (this.follow) this.pull();
    this.refresh();
  }

  async catchUp() {
    if (this.busy || !this.follow || this.signal.aborted) return;
    this.busy = true;
    try {
      while (this.last < this.tail.message && this.follow) {
        const gap = this.tail.message - this.last;
        const from = gap > GAP_MAX ? this.tail.message - PAGE : this.last;
        const { messages, last } = await range(
          this.stream,
          from,
          Math.min(from + PAGE * 2, this.tail.message),
          this.isJson,
          this.signal,
        );
        if (this.signal.aborted) return;
        this.add(messages, from, last);
      }
    } catch (error) {
      if (error.name !== "AbortError")
        this.list.append(el("li", { class: "plain" }, errorBox(error)));
    } finally {
      this.busy = false;
      this.refresh();
    }
  }

  add(messages, from, last) {
    if (this.list.querySelector(".plain")) this.list.replaceChildren();
    if (from > this.last)
      this.list.append(
        el(
          "li",
          { class: "gap" },
          `${plural(from - this.last, "message")} skipped: the stream is faster than the page`,
        ),
      );
    this.list.append(...messages.map((message) => this.item(message)));
    this.last = last;
    const most = this.stick ? KEPT_MAX : 2 * KEPT_MAX;
    while (this.list.children.length > most) this.list.firstElementChild.remove();
    this.first = Number(this.list.querySelector("[data-number]")?.dataset.number ?? this.first);
    if (this.stick) this.scrollDown();
    this.unannounced += messages.length;
    this.announceNew();
  }

  scrolled() {
    this.stick = this.list.scrollHeight - this.list.scrollTop - this.list.clientHeight < 40;
    if (this.stick) this.refresh();
  }

  scrollDown() {
    this.list.scrollTop = this.list.scrollHeight;
  }

  setStatus(text, kind) {
    this.status.textContent = text;
    this.status.className = `pill ${kind}`;
    this.pauseButton.hidden = kind !== "good" && kind !== "busy";
  }

  // Updates buttons, counters and the text of an empty list.
  refresh() {
    const { first, last, tail, earliest } = this;
    const total = tail.message - earliest.message;
    this.where.textContent =
      total && last > first ? `${count(first)}–${count(last - 1)} of ${count(tail.message)}` : "";
    this.moves.first.disabled = this.moves.older.disabled = first <= earliest.message;
    this.moves.newer.disabled = this.moves.newest.disabled = last >= tail.message;
    this.foot.hidden = total <= PAGE && first <= earliest.message && last >= tail.message;
    const missed = tail.message - last;
    this.news.hidden = missed <= 0 || (this.follow && this.stick);
    if (!this.news.hidden) this.news.textContent = `${plural(missed, "new message")} ↓`;
    if (!total && !this.busy) {
      const why = tail.message
        ? "All messages so far are in the snapshot."
        : "Append the first one below. New messages appear here automatically.";
      replace(
        this.list,
        el(
          "li",
          { class: "plain" },
          empty(tail.message ? "No messages after the snapshot" : "No messages yet", why),
        ),
      );
    }
  }
}
