// The entry point: the current view, signing in, and the theme.

import { token } from "./api.js";
import { dashboard } from "./dashboard.js";
import { field } from "./dialogs.js";
import { el, replace } from "./dom.js";
import { visibleName } from "./format.js";
import { streamList } from "./lists.js";
import { parse } from "./routes.js";
import { Sidebar } from "./sidebar.js";
import { StreamView } from "./stream.js";
import { subscriptions } from "./subscriptions.js";

const THEME = "tailrace-theme";
const THEMES = { auto: "Auto", light: "Light", dark: "Dark" };

const byId = (id) => document.getElementById(id);
const main = byId("main");
const layout = byId("layout");
const sidebar = new Sidebar(byId("sidebar"), {
  onError: (error) => {
    if (error.status === 401) signIn(error);
  },
});
let current = null;

// -- navigation -----------------------------------------------------------------------------------

function view(route, signal) {
  if (route.view === "list") {
    return streamList({
      ...route,
      signal,
      onBucketDeleted: () => {
        location.hash = "#/";
        sidebar.load();
      },
    });
  }
  if (route.view === "stream") return new StreamView({ ...route, signal });
  if (route.view === "subscriptions") return subscriptions(signal);
  return dashboard(signal);
}

const titles = {
  list: ({ bucket }) => (bucket === null ? "Base paths" : bucket),
  stream: ({ id }) => id,
  dashboard: () => "Dashboard",
  subscriptions: () => "Subscriptions",
  home: () => "",
};

function render() {
  current?.abort();
  current = new AbortController();
  const route = parse(location.hash);
  const title = visibleName(titles[route.view](route));
  document.title = title ? `${title} – Tailrace` : "Tailrace";
  layout.dataset.view = route.view;
  byId("nav-dashboard").toggleAttribute("data-current", route.view === "dashboard");
  byId("nav-subscriptions").toggleAttribute("data-current", route.view === "subscriptions");
  byId("nav-streams").toggleAttribute(
    "data-current",
    !["dashboard", "subscriptions"].includes(route.view),
  );
  sidebar.mark(route.bucket);
  const { signal } = current;
  const made = view(route, signal);
  replace(main, made.element);
  scrollTo(0, 0);
  made.ready?.catch((error) => {
    if (signal.aborted) return;
    if (error.status !== 401) throw error;
    signIn(error);
  });
}

addEventListener("hashchange", (event) => {
  render();
  // The focused element was removed: move focus so that screen readers start at the new view.
  if (event.isTrusted) main.focus({ preventScroll: true });
});

byId("skip").addEventListener("click", (event) => {
  // A link to #main would change the hash, which selects the view.
  event.preventDefault();
  main.focus();
});

addEventListener("keydown", (event) => {
  const typing = event.target.closest?.("input, textarea, select, dialog");
  if (event.key === "/" && !typing && !event.ctrlKey && !event.metaKey) {
    event.preventDefault();
    (byId("find") ?? sidebar.search).focus();
  }
});

// -- signing in -----------------------------------------------------------------------------------

function signIn(error) {
  // Several requests are rejected together: only the first shows the form, so typed text stays.
  if (layout.dataset.view === "sign-in") return;
  current?.abort();
  sidebar.clear();
  layout.dataset.view = "sign-in";
  const input = el("input", { type: "password", autocomplete: "off", spellcheck: "false" });
  const rejected = token.get() !== "";
  token.clear();
  showSignedIn();
  replace(
    main,
    el(
      "form",
      {
        class: "card sign-in",
        onsubmit: (event) => {
          event.preventDefault();
          if (!input.value.trim()) return;
          token.set(input.value.trim());
          start();
        },
      },
      el("h1", null, "Sign in"),
      el(
        "p",
        null,
        rejected ? "The server rejected this token." : "This server requires a token.",
      ),
      el("p", { class: "hint" }, error.detail),
      field("Token", input, "Kept in this tab only, until it is closed or you sign out."),
      el(
        "div",
        { class: "buttons" },
        el("button", { type: "submit", class: "primary" }, "Sign in"),
      ),
    ),
  );
  input.focus();
}

function showSignedIn() {
  byId("sign-out").hidden = token.get() === "";
}

byId("sign-out").addEventListener("click", () => {
  token.clear();
  start();
});

// -- theme ----------------------------------------------------------------------------------------

function setTheme(theme) {
  if (theme === "auto") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = theme;
  byId("theme").textContent = `Theme: ${THEMES[theme]}`;
  localStorage.setItem(THEME, theme);
}

const stored = localStorage.getItem(THEME);
setTheme(stored in THEMES ? stored : "auto");
byId("theme").addEventListener("click", () => {
  const names = Object.keys(THEMES);
  setTheme(names[(names.indexOf(localStorage.getItem(THEME)) + 1) % names.length]);
});

function start() {
  showSignedIn();
  sidebar.load();
  render();
}

start();
