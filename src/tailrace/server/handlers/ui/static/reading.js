// Reads messages by their numbers. The server resolves numbers to offsets; the content between two
// offsets never changes.

import { parseOffset } from "./api.js";
import { Content } from "./content.js";
import { elements } from "./json.js";

const PAGE_BYTES_MAX = 2 << 20;

function joined(pieces) {
  const all = new Uint8Array(pieces.reduce((size, piece) => size + piece.length, 0));
  let at = 0;
  for (const piece of pieces) {
    all.set(piece, at);
    at += piece.length;
  }
  return all;
}

// The contents of adjacent messages, each given by its offsets `from` and `until`.
export async function contents(stream, spans, isJson, signal) {
  const pieces = [];
  for await (const piece of stream.read(spans[0].from, spans.at(-1).until, signal))
    pieces.push(piece);
  if (isJson) {
    const texts = pieces.flatMap((piece) => elements(new TextDecoder().decode(piece)));
    return texts.map((text) => new Content({ text }));
  }
  const all = joined(pieces);
  const start = parseOffset(spans[0].from).byte;
  return spans.map(
    ({ from, until }) =>
      new Content({
        data: all.subarray(parseOffset(from).byte - start, parseOffset(until).byte - start),
      }),
  );
}

// The messages from `first` up to, not including, `end`. Fewer if they are large. A first message
// that is too large by itself comes without its content.
export async function range(stream, first, end, isJson, signal) {
  if (end <= first) return { messages: [], last: first };
  const numbers = Array.from({ length: end - first + 1 }, (_, at) => first + at);
  const tokens = await stream.offsets(numbers, signal);
  const offsets = tokens.map(parseOffset);
  if (offsets[0].message !== first)
    throw new Error("These messages were replaced by a snapshot.");
  let number = 1;
  while (number < end - first && offsets[number + 1].byte - offsets[0].byte <= PAGE_BYTES_MAX)
    number += 1;
  const spans = numbers.slice(0, number).map((name, at) => ({
    number: name,
    size: offsets[at + 1].byte - offsets[at].byte,
    from: tokens[at],
    until: tokens[at + 1],
  }));
  if (spans[0].size > PAGE_BYTES_MAX) return { messages: spans, last: first + 1 };
  const found = await contents(stream, spans, isJson, signal);
  return {
    messages: spans.map((span, at) => ({ ...span, content: found[at] })),
    last: first + number,
  };
}
