// Creates elements. Text only becomes text nodes, never markup (§10.3):
// none of `innerHTML`, `outerHTML`, `insertAdjacentHTML`, `document.write` is used anywhere.

const SVG = "http://www.w3.org/2000/svg";

function fill(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes ?? {})) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (name === "value") node.value = value;
    else node.setAttribute(name, value === true ? "" : String(value));
  }
  node.append(
    ...children.flat().filter((child) => child !== null && child !== undefined && child !== false),
  );
  return node;
}

// Creates an element. Strings among the children become text nodes.
export function el(tag, attributes, ...children) {
  return fill(document.createElement(tag), attributes, children);
}

export function svg(tag, attributes, ...children) {
  return fill(document.createElementNS(SVG, tag), attributes, children);
}

export function replace(node, ...children) {
  node.replaceChildren(
    ...children.flat().filter((child) => child !== null && child !== undefined && child !== false),
  );
}

// Announces a text to screen readers, politely.
export function announce(text) {
  document.getElementById("announce").textContent = text;
}

// Shows an error, with an optional button to retry.
export function errorBox(error, retry) {
  return el(
    "div",
    { class: "notice bad", role: "alert" },
    el("strong", null, error.title ?? "Something went wrong"),
    el("p", null, error.detail ?? error.message ?? String(error)),
    retry && el("button", { type: "button", onclick: retry }, "Try again"),
  );
}

export function loading(text = "Loading…") {
  return el("p", { class: "loading" }, text);
}

export function empty(title, text, ...more) {
  return el(
    "div",
    { class: "empty" },
    el("strong", null, title),
    text && el("p", null, text),
    ...more,
  );
}

// Arrow keys, Home and End move between the links of a list; Tab leaves it.
export function arrowKeys(list, selector) {
  list.addEventListener("keydown", (event) => {
    const step = { ArrowDown: 1, ArrowUp: -1, Home: -Infinity, End: Infinity }[event.key];
    if (step === undefined || event.ctrlKey || event.metaKey || event.altKey) return;
    const items = [...list.querySelectorAll(selector)];
    const at = items.indexOf(document.activeElement);
    if (at < 0) return;
    event.preventDefault();
    items[Math.max(0, Math.min(items.length - 1, at + step))].focus();
  });
}

// Calls `action` once there was no call for this long, for example after typing.
export function debounce(milliseconds, action) {
  let timer = null;
  return () => {
    clearTimeout(timer);
    timer = setTimeout(action, milliseconds);
  };
}

// Calls `action` at most once per interval, however often it is requested.
export function throttle(milliseconds, action) {
  let timer = null;
  return () => {
    timer ??= setTimeout(() => {
      timer = null;
      action();
    }, milliseconds);
  };
}
