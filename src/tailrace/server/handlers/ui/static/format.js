// Formats numbers, times and names for display.

import { el } from "./dom.js";

const NUMBER = new Intl.NumberFormat("en");
const UNITS = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];

export const count = (value) => NUMBER.format(value);

export function plural(value, one, many = one + "s") {
  return `${count(value)} ${value === 1 ? one : many}`;
}

export function bytes(value) {
  let at = 0;
  while (value >= 1024 && at < UNITS.length - 1) {
    value /= 1024;
    at += 1;
  }
  return `${at === 0 || value >= 100 ? Math.round(value) : value.toFixed(1)} ${UNITS[at]}`;
}

export function short(value) {
  if (value >= 1e6) return `${(value / 1e6).toFixed(1)}M`;
  if (value >= 1e4) return `${(value / 1e3).toFixed(0)}k`;
  if (value >= 100 || Number.isInteger(value)) return String(Math.round(value));
  return value.toFixed(value >= 10 ? 1 : 2);
}

export function duration(milliseconds) {
  const seconds = Math.max(0, Math.ceil(milliseconds / 1000));
  const parts = [
    ["d", 86400],
    ["h", 3600],
    ["min", 60],
    ["s", 1],
  ];
  let rest = seconds;
  const shown = [];
  for (const [unit, size] of parts) {
    const amount = Math.floor(rest / size);
    rest -= amount * size;
    if (amount || (unit === "s" && !shown.length)) shown.push(`${amount} ${unit}`);
    if (shown.length === 2) break;
  }
  return shown.join(" ");
}

function ago(moment) {
  const passed = Date.now() - moment;
  if (passed < 0) return absolute(moment);
  if (passed < 10_000) return "just now";
  if (passed < 60_000) return `${Math.floor(passed / 1000)} s ago`;
  if (passed < 3_600_000) return `${Math.floor(passed / 60_000)} min ago`;
  if (passed < 86_400_000) return `${Math.floor(passed / 3_600_000)} h ago`;
  return new Date(moment).toLocaleDateString("en", {
    year: "numeric",
    month: "short",
    day: "numeric",
  });
}

function absolute(moment) {
  const date = new Date(moment);
  return Number.isNaN(date.getTime())
    ? String(moment)
    : date.toISOString().replace("T", " ").slice(0, 19) + " UTC";
}

export function moment(milliseconds) {
  return el("time", { title: absolute(milliseconds) }, ago(milliseconds));
}

// Characters that are invisible or change the direction of the text after them.
const HIDDEN =
  "\\u00ad\\u034f\\u061c\\u115f\\u1160\\u17b4\\u17b5\\u180b-\\u180f\\u200b\\u200e\\u200f" +
  "\\u2028-\\u202e\\u2060-\\u206f\\u3164\\ufeff\\uffa0\\ufff0-\\ufffb\\u{e0000}-\\u{e0fff}\\ud800-\\udfff";
const IN_TEXT = new RegExp(`[\\u0000-\\u0008\\u000b-\\u001f\\u007f-\\u009f${HIDDEN}]`, "gu");
const IN_NAME = new RegExp(
  `[\\u0000-\\u001f\\u007f-\\u00a0\\u200c\\u200d\\ufe00-\\ufe0e${HIDDEN}]`,
  "gu",
);

const codePoint = (character) =>
  `⟨U+${character.codePointAt(0).toString(16).toUpperCase().padStart(4, "0")}⟩`;

// Text with invisible and direction-changing characters spelled out.
export const visible = (text) => text.replace(/\r\n/g, "\n").replace(IN_TEXT, codePoint);

export const visibleName = (text) =>
  text.replace(IN_NAME, codePoint).replace(/^ +| +$/g, (spaces) => "␠".repeat(spaces.length));

// A user-chosen name, isolated so that its direction does not affect the text around it.
export function name(text, attributes) {
  return el(
    "bdi",
    { ...attributes, class: `name ${attributes?.class ?? ""}`.trim(), title: visibleName(text) },
    visibleName(text),
  );
}
