// Messages by their numbers. Their boundaries are offsets, which the server is asked for; what lies
// between two offsets never changes.

import { place } from "./api.js";
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

// What messages hold that lie next to each other, each with the offsets `from` and `until`.
export async function contents(stream, spans, isJson, signal) {
  const pieces = [];
  for await (const piece of stream.read(spans[0].from, spans.at(-1).until, signal))
    pieces.push(piece);
  if (isJson) {
    const texts = pieces.flatMap((piece) => elements(new TextDecoder().decode(piece)));
    return texts.map((text) => new Content({ text }));
  }
  const all = joined(pieces);
  const start = place(spans[0].from).byte;
  return spans.map(
    ({ from, until }) =>
      new Content({ data: all.subarray(place(from).byte - start, place(until).byte - start) }),
  );
}

// Messages from one number to before another: fewer if they are large, and the first one without its
// content if it alone is too much to be loaded unasked.
export async function range(stream, first, end, isJson, signal) {
  if (end <= first) return { messages: [], last: first };
  const numbers = Array.from({ length: end - first + 1 }, (_, at) => first + at);
  const tokens = await stream.offsets(numbers, signal);
  const places = tokens.map(place);
  if (places[0].message !== first)
    throw new Error("These messages are gone: a snapshot stands in their place.");
  let number = 1;
  while (number < end - first && places[number + 1].byte - places[0].byte <= PAGE_BYTES_MAX)
    number += 1;
  const spans = numbers.slice(0, number).map((name, at) => ({
    number: name,
    size: places[at + 1].byte - places[at].byte,
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
