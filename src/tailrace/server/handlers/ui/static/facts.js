// The properties of a stream. A value is drawn again only when it changed, so that keyboard focus
// stays on a button inside it.

import * as api from "./api.js";
import { Content, contentBox } from "./content.js";
import { contentDialog } from "./dialogs.js";
import { el, errorBox, loading, replace } from "./dom.js";
import { bytes, count, duration, moment, name } from "./format.js";

const SNAPSHOT_BYTES_MAX = 8 << 20;

const essence = (type) => type.split(";")[0].trim().toLowerCase();

export const isJson = (type) =>
  essence(type) === "application/json" || essence(type).endsWith("+json");
export const isText = (type) => essence(type).startsWith("text/") || isJson(type);

const TITLES = [
  "Status",
  "Content type",
  "Messages",
  "Size",
  "Created",
  "Last write",
  "Expires",
  "Snapshot",
  "Forked from",
  "Tail",
];

export class Facts {
  constructor(stream, signal) {
    this.stream = stream;
    this.signal = signal;
    this.values = new Map(TITLES.map((title) => [title, el("dd")]));
    this.element = el(
      "section",
      { class: "card", "aria-label": "Properties" },
      el(
        "dl",
        { class: "facts" },
        [...this.values].map(([title, value]) => el("div", null, el("dt", null, title), value)),
      ),
    );
  }

  set(title, key, make) {
    const value = this.values.get(title);
    if (value.dataset.key === key) return;
    value.dataset.key = key;
    replace(value, make());
  }

  update(about) {
    this.about = about;
    this.updatedAt = performance.now();
    const tail = api.parseOffset(about.next_offset);
    const { message: discarded } = api.parseOffset(about.earliest_offset);
    const text = (title, value, node = value) => this.set(title, String(value), () => [node]);
    text(
      "Status",
      about.closed,
      el(
        "span",
        { class: `pill ${about.closed ? "off" : "good"}` },
        about.closed ? "Closed" : "Open",
      ),
    );
    text("Content type", about.content_type, el("code", null, about.content_type));
    this.set("Messages", `${tail.message} ${discarded}`, () => [
      count(tail.message),
      discarded > 0 && el("small", null, ` ${count(tail.message - discarded)} retained`),
    ]);
    text("Size", bytes(tail.byte));
    for (const [title, at] of [
      ["Created", about.created_at_ms],
      ["Last write", about.last_write_at_ms],
    ]) {
      const node = moment(at);
      text(title, `${at} ${node.textContent}`, node);
    }
    this.set("Snapshot", JSON.stringify(about.snapshot), () => [
      about.snapshot ? this.snapshot(about.snapshot) : "None",
    ]);
    const source = about.forked_from;
    this.set("Forked from", JSON.stringify(source ?? null), () => [
      source ? el("code", null, source.stream_id) : "None",
      source && el("small", null, ` before #${count(api.parseOffset(source.offset).message)}`),
    ]);
    text("Tail", about.next_offset, el("code", { class: "offset" }, about.next_offset));
    this.tick();
  }

  // Counts the remaining time down between two responses of the server.
  tick() {
    const { expires_at_ms: end, remaining_ms: remaining } = this.about;
    const left = remaining - (performance.now() - this.updatedAt);
    const shown = end === null ? "Never" : left > 0 ? `in ${duration(left)}` : "Expired";
    this.set("Expires", shown, () => [shown]);
  }

  snapshot(snapshot) {
    return el(
      "span",
      null,
      el(
        "button",
        { type: "button", class: "link", onclick: () => this.showSnapshot(snapshot) },
        `Before #${count(api.parseOffset(snapshot.offset).message)}`,
      ),
      el("small", null, ` ${bytes(snapshot.bytes)}`),
    );
  }

  async showSnapshot(snapshot) {
    const box = el("div", null, loading());
    const before = count(api.parseOffset(snapshot.offset).message);
    contentDialog(
      "Snapshot",
      el(
        "p",
        { class: "hint" },
        `${bytes(snapshot.bytes)} of `,
        el("code", null, snapshot.content_type),
        `, replaces all messages before ${before}; published `,
        moment(snapshot.at_ms),
        ".",
      ),
      box,
    );
    if (snapshot.bytes > SNAPSHOT_BYTES_MAX) {
      replace(box, el("p", null, "Too large to show here."));
      return;
    }
    try {
      const content = new Content({
        data: await this.stream.snapshot(snapshot.offset, this.signal),
      });
      const json = isJson(snapshot.content_type) && content.text !== null;
      replace(box, contentBox(content, json ? "json" : "auto", false));
    } catch (error) {
      replace(box, errorBox(error));
    }
  }
}

// The producers of the stream: the first page of them.
export class ProducerTable {
  constructor() {
    this.number = el("span", { class: "side" });
    this.body = el("div");
    this.element = el(
      "details",
      { class: "card" },
      el("summary", null, el("h2", null, "Producers"), this.number),
      this.body,
    );
  }

  update({ producers, producer_count: number }) {
    const key = JSON.stringify([number, producers]);
    if (this.key === key) return;
    this.key = key;
    this.number.textContent = count(number);
    if (number === 0) {
      replace(
        this.body,
        el("p", { class: "hint" }, "No append to this stream had a Producer-Id."),
      );
      return;
    }
    const head = ["Id", "Epoch", "Last sequence number"].map((title) =>
      el("th", { scope: "col" }, title),
    );
    const rows = producers.map(({ id, epoch, last_seq: seq }) =>
      el(
        "tr",
        null,
        [name(id), count(epoch), count(seq)].map((value) => el("td", null, value)),
      ),
    );
    replace(
      this.body,
      el(
        "div",
        { class: "scroll" },
        el("table", null, el("thead", null, el("tr", null, head)), el("tbody", null, rows)),
      ),
      number > producers.length &&
        el("p", { class: "hint" }, `The first ${count(producers.length)} of ${count(number)}.`),
    );
  }
}
