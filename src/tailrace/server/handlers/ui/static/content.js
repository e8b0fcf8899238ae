// Shows a message as JSON, text or bytes. Content is untrusted: it only becomes text nodes.

import { el, replace } from "./dom.js";
import { bytes, count, visible } from "./format.js";
import { jsonError, pretty } from "./json.js";

const CUT = 4_000;
const ALL = 1 << 20;
const SPANS_MAX = 4_000;
const NARROW = matchMedia("(max-width: 34rem)");

export const VIEWS = ["auto", "json", "text", "hex"];

const encoder = new TextEncoder();

// The content of a message, from bytes or from text.
export class Content {
  #bytes;
  #text;

  constructor({ data, text }) {
    this.#bytes = data;
    this.#text = text;
  }

  get bytes() {
    this.#bytes ??= encoder.encode(this.#text);
    return this.#bytes;
  }

  // The content as text, or null if it is not UTF-8.
  get text() {
    if (this.#text === undefined) {
      try {
        this.#text = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(this.#bytes);
      } catch {
        this.#text = null;
      }
    }
    return this.#text;
  }
}

// Bytes that happen to be UTF-8 have more than a few control characters.
function readable(text) {
  const sample = text.slice(0, 2_000);
  let odd = 0;
  for (const character of sample) {
    const code = character.charCodeAt(0);
    if ((code < 32 && code !== 9 && code !== 10 && code !== 13 && code !== 27) || code === 127)
      odd += 1;
  }
  return odd * 20 <= sample.length;
}

function chosen(content, view, isJson) {
  if (view === "hex" || content.text === null) return "hex";
  if (view === "json") return jsonError(content.text) === null ? "json" : "text";
  if (view === "text") return "text";
  if (isJson) return "json";
  return readable(content.text) ? "text" : "hex";
}

function hexRows(data, most) {
  const width = NARROW.matches ? 8 : 16;
  const rows = [];
  for (let at = 0; at < Math.min(data.length, most); at += width) {
    const row = data.subarray(at, Math.min(at + width, data.length));
    const pairs = Array.from(row, (value) => value.toString(16).padStart(2, "0"));
    const letters = Array.from(row, (value) =>
      value >= 32 && value < 127 ? String.fromCharCode(value) : "·",
    );
    rows.push(
      `${at.toString(16).padStart(6, "0")}  ${pairs.join(" ").padEnd(width * 3 - 1)}  ${letters.join("")}`,
    );
  }
  return rows.join("\n");
}

// Does not split a surrogate pair.
function cut(text, most) {
  const end =
    text.charCodeAt(most - 1) >= 0xd800 && text.charCodeAt(most - 1) < 0xdc00 ? most - 1 : most;
  return text.slice(0, end);
}

function body(content, how, most) {
  if (how === "hex") {
    return {
      nodes: [hexRows(content.bytes, most / 4)],
      complete: content.bytes.length <= most / 4,
    };
  }
  if (how === "text") {
    return { nodes: [visible(cut(content.text, most))], complete: content.text.length <= most };
  }
  const { parts, complete } = pretty(content.text, most);
  if (parts.length > SPANS_MAX || most > CUT)
    return { nodes: [visible(cut(parts.map(([, text]) => text).join(""), most))], complete };
  const nodes = parts.map(([kind, text]) =>
    kind === "mark" ? visible(text) : el("span", { class: `j-${kind}` }, visible(cut(text, most))),
  );
  return { nodes, complete: complete && parts.every(([, text]) => text.length <= most) };
}

// An element that shows the content. Long content is truncated, with a button to show all.
export function contentBox(content, view, isJson) {
  const how = chosen(content, view, isJson);
  const box = el("div", { class: "content" });
  const size = content.bytes.length;
  const note =
    view !== "auto" && view !== how
      ? el(
          "p",
          { class: "hint" },
          how === "hex" ? "Not UTF-8, shown as bytes." : "Not JSON, shown as text.",
        )
      : null;
  const show = (most) => {
    const { nodes, complete } = body(content, how, most);
    const more =
      !complete &&
      most < ALL &&
      el(
        "button",
        { type: "button", class: "small", onclick: () => show(ALL) },
        `Show all (${bytes(size)})`,
      );
    const rest =
      !complete &&
      most >= ALL &&
      el("p", { class: "hint" }, `Truncated: the message has ${count(size)} bytes.`);
    replace(box, note, el("pre", { class: how }, ...nodes), more, rest);
  };
  show(CUT);
  return box;
}
