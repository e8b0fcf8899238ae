// Modal dialogs. They are <dialog> elements: Escape closes them, and focus returns to the opener.

import { el, errorBox, replace } from "./dom.js";
import { name, visibleName } from "./format.js";
import { jsonError } from "./json.js";

let number = 0;

// A labelled form field with an optional hint.
export function field(label, input, hint) {
  input.id ||= `field-${(number += 1)}`;
  return el(
    "div",
    { class: "field" },
    el("label", { for: input.id }, label),
    input,
    hint && el("p", { class: "hint" }, hint),
  );
}

// A form in a dialog. Submitting runs `action`; an error is shown and the dialog stays open.
export function formDialog({ title, body, label, danger, ready, action }) {
  const opener = document.activeElement;
  const errors = el("div");
  const submit = el("button", { type: "submit", class: danger ? "danger" : "primary" }, label);
  const heading = el("h2", { id: `dialog-${(number += 1)}` }, title);
  const cancel = el("button", { type: "button", onclick: () => dialog.close() }, "Cancel");
  const update = () => {
    submit.disabled = ready ? !ready() : false;
  };
  const form = el(
    "form",
    {
      method: "dialog",
      novalidate: true,
      oninput: update,
      onsubmit: async (event) => {
        event.preventDefault();
        if (submit.disabled) return;
        submit.disabled = true;
        replace(errors);
        try {
          await action();
          dialog.close();
        } catch (error) {
          replace(errors, errorBox(error));
          update();
        }
      },
    },
    heading,
    body,
    errors,
    el("div", { class: "buttons" }, cancel, submit),
  );
  const dialog = el(
    "dialog",
    {
      "aria-labelledby": heading.id,
      onclose: () => {
        dialog.remove();
        opener?.focus?.();
      },
    },
    form,
  );
  document.body.append(dialog);
  dialog.showModal();
  update();
}

// A dialog that shows content and has one button to close it.
export function contentDialog(title, ...body) {
  const opener = document.activeElement;
  const heading = el("h2", { id: `dialog-${(number += 1)}` }, title);
  const done = el("button", { type: "button", onclick: () => dialog.close() }, "Done");
  const dialog = el(
    "dialog",
    {
      class: "wide",
      "aria-labelledby": heading.id,
      onclose: () => {
        dialog.remove();
        opener?.focus?.();
      },
    },
    heading,
    ...body,
    el("div", { class: "buttons" }, done),
  );
  document.body.append(dialog);
  dialog.showModal();
}

// Deletion cannot be undone, so the name must be typed.
export function confirmDelete({ what, itemName, warning, action }) {
  const shown = visibleName(itemName);
  // A name with invisible characters cannot be typed: ask for a word instead.
  const wanted = shown === itemName ? itemName : "delete";
  const input = el("input", {
    type: "text",
    autocomplete: "off",
    autocapitalize: "off",
    spellcheck: "false",
  });
  formDialog({
    title: `Delete this ${what}?`,
    body: [
      el("p", null, name(itemName)),
      el("p", null, warning),
      field(
        wanted === itemName ? "Type its name to confirm" : "Type the word delete to confirm",
        input,
      ),
    ],
    label: `Delete ${what}`,
    danger: true,
    ready: () => input.value === wanted,
    action,
  });
}

export function createBucket(action) {
  const input = el("input", {
    type: "text",
    autocomplete: "off",
    autocapitalize: "off",
    spellcheck: "false",
    maxlength: "64",
  });
  formDialog({
    title: "New bucket",
    body: field("Name", input, "4 to 64 characters: a–z, 0–9, _ and -."),
    label: "Create bucket",
    ready: () => input.value.length >= 4,
    action: () => action(input.value),
  });
}

export function createStream(inBucket, action) {
  const id = el("input", {
    type: "text",
    autocomplete: "off",
    autocapitalize: "off",
    spellcheck: "false",
  });
  const types = el(
    "datalist",
    { id: "types" },
    ["application/json", "text/plain", "application/octet-stream", "application/x-ndjson"].map(
      (type) => el("option", { value: type }),
    ),
  );
  const type = el("input", {
    type: "text",
    list: "types",
    value: "application/json",
    autocomplete: "off",
    spellcheck: "false",
  });
  const ttl = el("input", {
    type: "text",
    inputmode: "numeric",
    autocomplete: "off",
    placeholder: "No expiry",
  });
  formDialog({
    title: "New stream",
    body: [
      field(
        inBucket ? "Name" : "Path",
        id,
        inBucket ? "Any text without / and .." : "One or more segments, such as chat/room-1.",
      ),
      field(
        "Content type",
        type,
        "application/json takes JSON values; every other type takes bytes.",
      ),
      types,
      field("Time to live (seconds)", ttl, "Leave empty for no expiry."),
    ],
    label: "Create stream",
    ready: () => id.value !== "" && type.value !== "" && /^[0-9]*$/.test(ttl.value),
    action: () => action(id.value, type.value, ttl.value),
  });
}

// Publish a snapshot: the message that it ends before, its type and its content.
export function publishSnapshot({ earliest, tail, action }) {
  const message = el("input", {
    type: "text",
    inputmode: "numeric",
    value: String(tail),
    autocomplete: "off",
  });
  const type = el("input", {
    type: "text",
    value: "application/json",
    autocomplete: "off",
    spellcheck: "false",
  });
  const content = el("textarea", { rows: "6", spellcheck: "false" });
  const at = () => (/^[0-9]+$/.test(message.value) ? Number(message.value) : NaN);
  formDialog({
    title: "Publish a snapshot",
    body: [
      el(
        "p",
        null,
        "A snapshot replaces all messages before it. They and the previous snapshot are deleted.",
      ),
      field("Before message number", message, `From ${earliest} to ${tail}; ${tail} is the tail.`),
      field("Content type", type),
      field("Content", content),
    ],
    label: "Publish",
    danger: true,
    ready: () => at() >= earliest && at() <= tail && type.value !== "",
    action: () => {
      const wrong = /^application\/json\b|\+json\b/i.test(type.value)
        ? jsonError(content.value)
        : null;
      if (wrong) throw Object.assign(new Error(wrong), { title: "The content is not JSON" });
      return action(at(), content.value, type.value);
    },
  });
}
