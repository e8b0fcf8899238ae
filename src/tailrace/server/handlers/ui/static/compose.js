// The form that appends a message. The text is checked, then sent unchanged, byte for byte.

import { el, replace } from "./dom.js";
import { jsonError } from "./json.js";

const FORMS = { json: "JSON", text: "Text", base64: "Base64", hex: "Hex" };

function fromHex(text) {
  const digits = text.replace(/[\s:,]|0x/g, "");
  if (!/^(?:[0-9a-fA-F]{2})*$/.test(digits)) throw new Error("Hex needs pairs of 0–9 and a–f.");
  return Uint8Array.from(digits.match(/../g) ?? [], (pair) => parseInt(pair, 16));
}

function fromBase64(text) {
  try {
    return Uint8Array.from(
      atob(text.replace(/\s/g, "").replace(/-/g, "+").replace(/_/g, "/")),
      (letter) => letter.charCodeAt(0),
    );
  } catch {
    throw new Error("This is not Base64.");
  }
}

// Encodes the text as bytes. Throws an error that says what is wrong with the text.
export function encode(text, form) {
  if (form === "hex") return fromHex(text);
  if (form === "base64") return fromBase64(text);
  if (form === "json") {
    const wrong = jsonError(text);
    if (wrong) throw new Error(`Not JSON: ${wrong}`);
  }
  return new TextEncoder().encode(text);
}

export function compose({ isJson, isText, append }) {
  const forms = isJson ? ["json"] : ["text", "json", "base64", "hex"];
  const select = el(
    "select",
    { "aria-label": "Input format" },
    forms.map((form) => el("option", { value: form }, FORMS[form])),
  );
  select.value = isJson ? "json" : isText ? "text" : "hex";
  const box = el("textarea", {
    rows: "3",
    spellcheck: "false",
    "aria-label": "Message to append",
    placeholder: isJson ? '{"hello": "world"}' : "A message",
  });
  const note = el("p", { class: "hint", role: "status" });
  const button = el("button", { type: "submit", class: "primary" }, "Append");
  const say = (text, bad) => {
    note.textContent = text;
    note.className = bad ? "hint wrong" : "hint";
  };
  const help = isJson
    ? "An array appends its elements, one message each. Ctrl+Enter sends."
    : "Ctrl+Enter sends.";
  say(help);
  let sending = false;

  async function send(event) {
    event?.preventDefault();
    if (sending) return;
    let body;
    try {
      body = encode(box.value, select.value);
      if (!body.length) throw new Error("Nothing to append.");
    } catch (error) {
      say(error.message, true);
      box.focus();
      return;
    }
    sending = button.disabled = true;
    try {
      await append(body);
      box.value = "";
      say("Appended.");
    } catch (error) {
      say(`${error.title ?? "Not appended"}: ${error.detail ?? error.message}`, true);
    } finally {
      sending = button.disabled = false;
      box.focus();
    }
  }

  box.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) send(event);
  });
  box.addEventListener("input", () => say(help));
  const form = el(
    "form",
    { class: "card compose", "aria-label": "Append", onsubmit: send },
    el(
      "div",
      { class: "tools" },
      el("h2", null, "Append"),
      el("span", { class: "spacer" }),
      forms.length > 1 && select,
    ),
    box,
    el("div", { class: "tools foot" }, note, el("span", { class: "spacer" }), button),
  );
  return { element: form, remove: () => replace(form) };
}
