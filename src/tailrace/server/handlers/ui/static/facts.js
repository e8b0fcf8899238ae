// What is known of a stream. Drawn again only where something changed: whoever stands on a button of
// it with the keyboard stays there.

import * as api from "./api.js";
import { Content, contentBox } from "./content.js";
import { show } from "./dialogs.js";
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
  "Lives",
  "Snapshot",
  "Tail",
];

export class Facts {
  constructor(stream, signal) {
    this.stream = stream;
    this.signal = signal;
    this.values = new Map(TITLES.map((title) => [title, el("dd")]));
    this.element = el(
      "section",
      { class: "card", "aria-label": "Facts" },
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
    const tail = api.place(about.next_offset);
    const { message: gone } = api.place(about.earliest_offset);
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
    this.set("Messages", `${tail.message} ${gone}`, () => [
      count(tail.message),
      gone > 0 && el("small", null, ` ${count(tail.message - gone)} retained`),
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
    text("Tail", about.next_offset, el("code", { class: "offset" }, about.next_offset));
    this.tick();
  }

  // The time that is left, counted down between two answers of the server.
  tick() {
    const { expires_at_ms: end, remaining_ms: remaining } = this.about;
    const left = remaining - (performance.now() - this.updatedAt);
    const said = end === null ? "For ever" : left > 0 ? `${duration(left)} more` : "Over";
    this.set("Lives", said, () => [said]);
  }

  snapshot(snapshot) {
    return el(
      "span",
      null,
      el(
        "button",
        { type: "button", class: "link", onclick: () => this.showSnapshot(snapshot) },
        `Before #${count(api.place(snapshot.offset).message)}`,
      ),
      el("small", null, ` ${bytes(snapshot.bytes)}`),
    );
  }

  async showSnapshot(snapshot) {
    const box = el("div", null, loading());
    const before = count(api.place(snapshot.offset).message);
    show(
      "Snapshot",
      el(
        "p",
        { class: "hint" },
        `${bytes(snapshot.bytes)} of `,
        el("code", null, snapshot.content_type),
        `, standing for all before message ${before}; published `,
        moment(snapshot.at_ms),
        ".",
      ),
      box,
    );
    if (snapshot.bytes > SNAPSHOT_BYTES_MAX) {
      replace(box, el("p", null, "It is too large to be shown here."));
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

// Who wrote to the stream with Producer-Id, as far as one answer tells.
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
        el("p", { class: "hint" }, "Nobody has appended to this stream with a Producer-Id."),
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
