// Works on the text of JSON, not on parsed values: 12345678901234567890, 1e2 and the order of keys
// stay as they were sent, and deep nesting needs no stack.

const DEPTH_SHOWN = 24;
const MARKS = "{}[]:,";
const SPACE = " \t\n\r";

// The index after the string that begins at `start`.
function afterString(text, start) {
  let at = start;
  for (;;) {
    at = text.indexOf('"', at + 1);
    if (at < 0) return text.length;
    let slashes = 0;
    while (text[at - 1 - slashes] === "\\") slashes += 1;
    if (slashes % 2 === 0) return at + 1;
  }
}

function* tokens(text) {
  let at = 0;
  while (at < text.length) {
    const character = text[at];
    let end = at + 1;
    if (SPACE.includes(character)) {
      at = end;
      continue;
    }
    if (character === '"') end = afterString(text, at);
    else if (!MARKS.includes(character)) {
      while (
        end < text.length &&
        !MARKS.includes(text[end]) &&
        !SPACE.includes(text[end]) &&
        text[end] !== '"'
      )
        end += 1;
    }
    yield text.slice(at, end);
    at = end;
  }
}

const indent = (depth) => "\n" + "  ".repeat(Math.min(depth, DEPTH_SHOWN));

function kind(token) {
  if (token[0] === '"') return "string";
  return token === "true" || token === "false" || token === "null" ? "word" : "number";
}

// The text indented, as [kind, text] parts, up to about `charactersMax` characters.
export function pretty(text, charactersMax = Infinity) {
  const parts = [];
  const found = tokens(text);
  let size = 0;
  let depth = 0;
  let token = found.next().value;
  while (token !== undefined && size < charactersMax) {
    let next = found.next().value;
    let part;
    if (token === "{" || token === "[") {
      if (next === "}" || next === "]") {
        part = ["mark", token + next];
        next = found.next().value;
      } else {
        depth += 1;
        part = ["mark", token + indent(depth)];
      }
    } else if (token === "}" || token === "]") {
      depth -= 1;
      part = ["mark", indent(depth) + token];
    } else if (token === ",") part = ["mark", "," + indent(depth)];
    else if (token === ":") part = ["mark", ": "];
    else part = [next === ":" ? "key" : kind(token), token];
    parts.push(part);
    size += part[1].length;
    token = next;
  }
  return { parts, complete: token === undefined };
}

// The elements of an array, each as its original text.
export function elements(text) {
  const found = [];
  let depth = 0;
  let start = 0;
  const take = (end) => {
    const element = text.slice(start, end).trim();
    if (element) found.push(element);
  };
  for (let at = 0; at < text.length; at += 1) {
    const character = text[at];
    if (character === '"') at = afterString(text, at) - 1;
    else if (character === "[" || character === "{") {
      depth += 1;
      if (depth === 1) start = at + 1;
    } else if (character === "]" || character === "}") {
      depth -= 1;
      if (depth === 0) take(at);
    } else if (character === "," && depth === 1) {
      take(at);
      start = at + 1;
    }
  }
  return found;
}

// The reason why a text is not JSON, or null if it is.
export function jsonError(text) {
  try {
    JSON.parse(text);
    return null;
  } catch (error) {
    return error instanceof SyntaxError ? error.message : null;
  }
}
