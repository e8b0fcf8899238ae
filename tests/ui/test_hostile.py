"""
§10.3: the content of streams is untrusted, and never becomes markup or script in the page.

Attacks are put wherever the page shows text that others wrote: messages, names, content types,
producer ids, snapshots, the address. Then the page has no dialog, no error, no request to another
host, no policy violation and no element but its own, and it shows the text exactly.
"""

from __future__ import annotations

import json
from urllib.parse import quote

import pytest
from playwright.sync_api import Page, expect

from tests.ui.conftest import Ui, part

ATTACKS = [
    "<script>alert(1)</script>",
    "</script><script>alert(1)</script>",
    "<img src=x onerror=alert(1)>",
    "<img src=https://evil.example/pixel>",
    '"><svg onload=alert(1)>',
    "' onfocus=alert(1) autofocus x='",
    "javascript:alert(1)",
    "data:text/html,<script>alert(1)</script>",
    '<a href="javascript:alert(1)">click</a>',
    "<iframe srcdoc='<script>parent.alert(1)</script>'></iframe>",
    "<base href=https://evil.example/>",
    '<meta http-equiv=refresh content="0;url=https://evil.example/">',
    "<link rel=stylesheet href=https://evil.example/x.css>",
    "<style>*{display:none}</style>",
    "<form action=https://evil.example/><button autofocus>",
    "<!--",
    "--><b>bold</b>",
    "]]>",
    "&lt;b&gt;&amp;",
    '{{constructor.constructor("alert(1)")()}}',
    "${alert(1)}",
    "%3Cscript%3E",
    "__proto__",
    "constructor",
    "hasOwnProperty",
]
# Invisible or misleading characters, and how the page shows them.
DECEPTIONS = {
    "evil\u202egnp.exe": "evil⟨U+202E⟩gnp.exe",
    "a\u0000b": "a⟨U+0000⟩b",
    "in\u200bvisible": "in⟨U+200B⟩visible",
    "\u2066isolated": "⟨U+2066⟩isolated",
    "\ufeffmark": "⟨U+FEFF⟩mark",
    "bell\u0007": "bell⟨U+0007⟩",
    "line\u2028separator": "line⟨U+2028⟩separator",
    "\U000e0041tag": "⟨U+E0041⟩tag",
}
OWN_TAGS = {
    "A", "ASIDE", "BDI", "BODY", "BUTTON", "CODE", "DATALIST", "DD", "DETAILS", "DIALOG", "DIV",
    "DL", "DT", "FIGCAPTION", "FIGURE", "FORM", "H1", "H2", "HEAD", "HEADER", "HTML", "IMG",
    "INPUT", "LABEL", "LI", "LINK", "MAIN", "META", "NAV", "NOSCRIPT", "OL", "OPTION", "P", "PRE",
    "SCRIPT", "SECTION", "SELECT", "SMALL", "SPAN", "STRONG", "SUMMARY", "TABLE", "TBODY", "TD",
    "TEXTAREA", "TH", "THEAD", "TIME", "TITLE", "TR", "UL", "line", "path", "svg",
}  # fmt: skip
ADDRESSES = [
    "#/b/<img src=x onerror=alert(1)>/x",
    "#/b/" + part("<script>alert(1)</script>"),
    "#javascript:alert(1)",
    "#/p/%E0%A4%A",
    "#/b/%00%00%00%00/..%2F..%2F-%2Fbuckets",
    "#/p/..%2F..%2F..%2Fevil",
    "#/p?prefix=" + part('"><img src=x onerror=alert(1)>'),
    "#/b/__proto__/constructor",
]


def check_elements(page: Page) -> None:
    """The page has no element, handler, link, script or image but its own."""
    found = page.evaluate("""() => ({
      tags: [...new Set([...document.querySelectorAll("*")].map((node) => node.tagName))],
      handlers: [...document.querySelectorAll("*")].flatMap((node) => node.getAttributeNames())
        .filter((name) => name.startsWith("on") || name === "style" || name === "srcdoc"),
      links: [...document.querySelectorAll("a")].map((node) => node.getAttribute("href"))
        .filter((href) => !href.startsWith("#")),
      scripts: document.scripts.length,
      images: [...document.images].map((node) => node.getAttribute("src")),
      styles: document.styleSheets.length,
    })""")
    assert set(found["tags"]) <= OWN_TAGS, set(found["tags"]) - OWN_TAGS
    assert (found["handlers"], found["links"]) == ([], [])
    assert (found["scripts"], found["styles"]) == (1, 1)
    assert found["images"] == ["favicon.svg"]


def shown(ui: Ui) -> list[str]:
    """The texts of the messages."""
    texts: list[str] = ui.page.evaluate(
        "[...document.querySelectorAll('.messages pre')].map((node) => node.textContent)"
    )
    return texts


@pytest.mark.parametrize(
    "content_type",
    [
        "text/html",
        pytest.param("text/plain", marks=pytest.mark.slow),
        pytest.param("image/svg+xml", marks=pytest.mark.slow),
    ],
)
def test_messages_of_any_type(ui: Ui, content_type: str) -> None:
    bucket = ui.bucket()
    page = ui.open(ui.stream(bucket, content_type=content_type))
    expect(page.locator(".pane .pill")).to_have_text("Live")
    texts = [*ATTACKS, *DECEPTIONS]
    for text in texts:
        ui.append(bucket, text.encode(), content_type=content_type)
    expect(ui.messages()).to_have_count(len(texts))
    ui.button("Text").click()
    assert shown(ui) == [*ATTACKS, *DECEPTIONS.values()]
    check_elements(page)
    for view in ("JSON", "Hex"):
        ui.button(view).click()
        check_elements(page)


@pytest.mark.slow
def test_json_keys_and_values(ui: Ui) -> None:
    bucket = ui.bucket()
    page = ui.open(ui.stream(bucket))
    texts = [*ATTACKS, *DECEPTIONS]
    messages = [{text: [text]} for text in texts]
    # Not escaped, as JSON allows.
    raw = json.dumps(messages, ensure_ascii=False).encode()
    ui.append(bucket, raw)
    expect(ui.messages()).to_have_count(len(texts))
    texts_shown = shown(ui)
    for text, message in zip(ATTACKS, texts_shown, strict=False):
        quoted = json.dumps(text, ensure_ascii=False)
        assert message == f"{{\n  {quoted}: [\n    {quoted}\n  ]\n}}"
    assert "evil⟨U+202E⟩gnp.exe" in texts_shown[len(ATTACKS)]
    check_elements(page)


def test_stream_names(ui: Ui) -> None:
    bucket = ui.bucket()
    names = [name for name in (*ATTACKS, *DECEPTIONS) if not set("/\0") & set(name)]
    for name in names:
        ui.stream(bucket, name, body=b"[1]")
    page = ui.open(f"#/b/{bucket}")
    expect(page.locator(".streams a")).to_have_count(len(names))
    listed = page.locator(".streams bdi").evaluate_all("nodes => nodes.map((n) => n.textContent)")
    assert sorted(listed) == sorted(DECEPTIONS.get(name, name) for name in names)
    check_elements(page)
    for name in (
        "<img src=x onerror=alert(1)>",
        "evil\u202egnp.exe",
        "__proto__",
        "javascript:alert(1)",
    ):
        page.locator(".streams a").nth(listed.index(DECEPTIONS.get(name, name))).click()
        expect(page.locator("h1")).to_have_text(DECEPTIONS.get(name, name))
        expect(ui.messages()).to_have_count(1)
        ui.button("Delete").click()
        expect(ui.dialog()).to_contain_text(DECEPTIONS.get(name, name))
        check_elements(page)
        page.keyboard.press("Escape")
        page.go_back()
        expect(page.locator(".streams a")).to_have_count(len(names))


@pytest.mark.slow
def test_base_paths(ui: Ui) -> None:
    names = [f"hostile/{name}" for name in ATTACKS if "//" not in name and name != "</"]
    for name in names:
        ui.api.create("text/plain", b"x", path=f"/v1/stream/{quote(name)}")
    page = ui.open("#/p?prefix=hostile%2F")
    expect(page.locator(".streams a")).to_have_count(len(names))
    check_elements(page)
    page.locator(".streams a", has_text="hostile/<script>").click()
    expect(page.locator("h1")).to_have_text("hostile/<script>alert(1)</script>")
    check_elements(page)


@pytest.mark.slow
def test_content_types_producers_and_snapshots(ui: Ui) -> None:
    bucket = ui.bucket()
    attack = '<img src=x onerror="alert(1)">'
    hostile_type = f"text/html; x={attack}"
    address = ui.stream(bucket, content_type=hostile_type, body=b"one")
    claim = {"Producer-Id": attack, "Producer-Epoch": "0", "Producer-Seq": "0"}
    assert ui.api.post(f"/{bucket}/s", b"two", claim, hostile_type).status == 200
    tail = ui.api.tail(f"/{bucket}/s")
    published = ui.api.request(
        "PUT",
        f"/{bucket}/s/snapshot/{tail}",
        {"Content-Type": hostile_type},
        b"<script>alert(1)</script>",
    )
    assert published.status == 204
    page = ui.open(address)
    expect(page.locator(".facts code").first).to_have_text(hostile_type)
    page.get_by_text("Producers").click()
    expect(page.locator("tbody bdi")).to_have_text(attack)
    ui.button("Before #2").click()
    expect(ui.dialog().locator("pre")).to_have_text("<script>alert(1)</script>")
    expect(ui.dialog().locator("code")).to_have_text(hostile_type)
    check_elements(page)
    page.keyboard.press("Escape")
    ui.open(f"#/b/{bucket}")
    expect(page.locator(".type")).to_have_text(hostile_type)
    check_elements(page)


@pytest.mark.slow
def test_text_quoted_in_error_details(ui: Ui) -> None:
    ui.watched.expected = ("console: Failed to load resource",)
    page = ui.open()
    ui.button("New bucket").click()
    ui.dialog().get_by_label("Name").fill("<img src=x onerror=alert(1)>")
    ui.button("Create bucket").click()
    expect(ui.dialog().get_by_role("alert")).to_be_visible()
    check_elements(page)


def test_addresses(ui: Ui) -> None:
    """Anyone can make a link to the page."""
    ui.watched.expected = ("console: Failed to load resource",)
    for address in ADDRESSES:
        page = ui.open(address)
        # A new hash alone loads nothing.
        page.reload()
        expect(page.locator("main h1, main [role=alert]").first).to_be_visible()
        check_elements(page)


@pytest.mark.slow
def test_huge_messages_do_not_freeze_the_page(ui: Ui) -> None:
    bucket = ui.bucket()
    page = ui.open(ui.stream(bucket))
    big = [
        "<b>" * 100_000,
        list(range(50_000)),
        "\u202e" * 50_000,
        {str(at): "<i>" for at in range(20_000)},
        "\\" * 99_999,
    ]
    for value in big:
        ui.append(bucket, [value])
    expect(ui.messages()).to_have_count(len(big))
    assert page.evaluate("document.querySelectorAll('*').length") < 10_000
    for button in page.get_by_role("button", name="Show all").all()[:2]:
        button.click()
    check_elements(page)


@pytest.mark.slow
@pytest.mark.parametrize("resource", ["s", "s/snapshot/TAIL", "s/bootstrap"])
def test_html_content_opened_directly_is_sandboxed(ui: Ui, resource: str) -> None:
    """
    A stream may be HTML. Opened in a tab of this origin its script must not run: it could read the
    token that the page keeps.
    """
    bucket = ui.bucket()
    attack = (
        b"<script>document.title = 'stolen ' + sessionStorage.getItem('tailrace-token')</script>"
    )
    ui.stream(bucket, content_type="text/html", body=b"<p>first</p>")
    tail = ui.api.tail(f"/{bucket}/s")
    if "TAIL" in resource:
        path = f"/{bucket}/s/snapshot/{tail}"
        assert ui.api.request("PUT", path, {"Content-Type": "text/html"}, attack).status == 204
        resource = resource.replace("TAIL", tail)
    else:
        ui.append(bucket, attack, content_type="text/html")
    page = ui.open()
    page.evaluate("sessionStorage.setItem('tailrace-token', 'SECRET')")
    # The browser reports that it blocked the script, and nothing else.
    ui.watched.expected = ("console: Blocked script execution", "console: Failed to load resource")
    response = page.context.request.get(f"{ui.server.url}/{bucket}/{resource}")
    assert response.headers["content-security-policy"] == "sandbox"
    assert attack.decode() in response.text()
    if resource != "s/bootstrap":
        page.goto(f"{ui.server.url}/{bucket}/{resource}")
        expect(page.locator("script")).to_have_count(1)
        assert "stolen" not in page.title()
        assert page.evaluate("window.origin") == "null"
