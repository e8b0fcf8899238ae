"""The web page at `/-/ui/`, in a real browser. One test of each view is in `make test`."""

from __future__ import annotations

import json
import re
import time
from pathlib import Path

import pytest
from playwright.sync_api import Page, Route, expect

from tailrace.server.guard.access.token_editor import add_token
from tests.support.server import AsgiServerProcess, ServerProcess
from tests.ui.conftest import OpenUi, Ui


def overflow(page: Page) -> int:
    """Pixels by which the page is wider than its window."""
    width: int = page.evaluate(
        "document.documentElement.scrollWidth - document.documentElement.clientWidth"
    )
    return width


class TestWriting:
    def test_create_append_close_and_delete_by_hand(self, ui: Ui) -> None:
        page = ui.open()
        expect(page.locator("#sidebar")).to_contain_text("Base paths")
        ui.button("New bucket").click()
        ui.dialog().get_by_label("Name").fill("story-bucket")
        ui.button("Create bucket").click()
        expect(page.get_by_role("heading", name="story-bucket")).to_be_visible()
        expect(page.locator(".streams")).to_contain_text("No streams yet")

        ui.button("New stream").click()
        ui.dialog().get_by_label("Name").fill("first stream")
        ui.dialog().get_by_label("Time to live (seconds)").fill("3600")
        ui.button("Create stream").click()
        expect(page.get_by_role("heading", name="first stream")).to_be_visible()
        assert page.url.endswith("#/b/story-bucket/first%20stream")
        expect(page.locator(".messages")).to_contain_text("No messages yet")
        expect(page.locator(".facts")).to_contain_text("59 min")

        page.get_by_label("Message to append").fill('[{"n": 12345678901234567890}, "two"]')
        ui.button("Append").click()
        expect(ui.messages()).to_have_count(2)
        expect(ui.messages().first).to_contain_text('"n": 12345678901234567890')
        page.get_by_label("Message to append").press_sequentially("3")
        page.keyboard.press("Control+Enter")
        expect(ui.messages()).to_have_count(3)
        expect(page.get_by_label("Message to append")).to_have_value("")

        ui.button("Close").click()
        ui.button("Close stream").click()
        expect(page.locator(".facts .pill")).to_have_text("Closed")
        expect(page.get_by_label("Message to append")).to_be_hidden()
        expect(ui.button("Close")).to_have_count(0)

        ui.button("Delete").click()
        expect(ui.button("Delete stream")).to_be_disabled()
        ui.dialog().get_by_role("textbox").fill("first strea")
        expect(ui.button("Delete stream")).to_be_disabled()
        ui.dialog().get_by_role("textbox").fill("first stream")
        ui.button("Delete stream").click()
        expect(page.locator(".streams")).to_contain_text("No streams yet")
        assert ui.api.head("/story-bucket/first%20stream").status == 404

        ui.button("Delete bucket").click()
        ui.dialog().get_by_role("textbox").fill("story-bucket")
        ui.button("Delete bucket", ui.dialog()).click()
        expect(page.locator("#sidebar")).not_to_contain_text("story-bucket")
        assert ui.api.get("/story-bucket").status == 404

    @pytest.mark.slow
    def test_a_rejected_request_is_shown(self, ui: Ui) -> None:
        page = ui.open()
        ui.watched.expected = ("console: Failed to load resource",)
        ui.button("New bucket").click()
        ui.dialog().get_by_label("Name").fill("Not A Bucket")
        ui.button("Create bucket").click()
        expect(ui.dialog().get_by_role("alert")).to_contain_text("bucket")
        page.keyboard.press("Escape")
        expect(ui.dialog()).to_have_count(0)

    @pytest.mark.slow
    def test_invalid_json_is_not_sent(self, ui: Ui) -> None:
        page = ui.open(ui.stream(ui.bucket()))
        page.get_by_label("Message to append").fill('{"a": 1,}')
        ui.button("Append").click()
        expect(page.locator(".compose .wrong")).to_contain_text("Not JSON")
        expect(page.locator(".messages")).to_contain_text("No messages yet")

    @pytest.mark.slow
    def test_bytes_are_appended_as_hex_and_base64(self, ui: Ui) -> None:
        bucket = ui.bucket()
        page = ui.open(ui.stream(bucket, content_type="application/octet-stream"))
        for encoding, text in (("hex", "00 ff 80"), ("base64", "AP+A"), ("text", "é")):
            page.get_by_label("Input format").select_option(encoding)
            page.get_by_label("Message to append").fill(text)
            ui.button("Append").click()
            expect(page.get_by_label("Message to append")).to_have_value("")
        assert ui.api.read_all(f"/{bucket}/s") == b"\x00\xff\x80\x00\xff\x80" + "é".encode()
        expect(ui.messages()).to_have_count(3)
        expect(ui.messages().first).to_contain_text("00 ff 80")
        expect(ui.messages().last).to_contain_text("é")


class TestLive:
    def test_a_message_from_another_client_arrives(
        self, ui: Ui, capsys: pytest.CaptureFixture[str]
    ) -> None:
        """The latency is printed, as the page sees it; below 1 s on an idle machine."""
        bucket = ui.bucket()
        page = ui.open(ui.stream(bucket))
        expect(page.locator(".pane .pill")).to_have_text("Live")
        page.evaluate("""() => {
            window.arrived = new Promise((done) => new MutationObserver((_, observer) => {
              if (document.querySelector(".messages [data-number]")) {
                observer.disconnect();
                done(Date.now());
              }
            }).observe(document.querySelector(".messages"), { childList: true, subtree: true }));
        }""")
        sent = time.time() * 1000
        ui.append(bucket, {"from": "elsewhere"})
        arrived = page.evaluate("window.arrived")
        with capsys.disabled():
            # Printed, not asserted: the machine may be busy.
            print(f" [in the page after {arrived - sent:.0f} ms] ", end="")  # noqa: T201
        expect(ui.messages()).to_contain_text('"from": "elsewhere"')
        expect(page.locator("#announce")).to_contain_text("1 new message")

    @pytest.mark.slow
    def test_pause_counts_new_messages_and_resume_shows_them(self, ui: Ui) -> None:
        bucket = ui.bucket()
        page = ui.open(ui.stream(bucket, body=b"[0]"))
        expect(page.locator(".pane .pill")).to_have_text("Live")
        expect(ui.messages()).to_have_count(1)
        ui.button("Pause").click()
        for at in range(3):
            ui.append(bucket, at)
        expect(page.locator(".news")).to_contain_text("3 new messages")
        expect(ui.messages()).to_have_count(1)
        ui.button("Resume").click()
        expect(ui.messages()).to_have_count(4)
        expect(page.locator(".news")).to_be_hidden()

    @pytest.mark.slow
    def test_text_messages_keep_their_boundaries(self, ui: Ui) -> None:
        bucket = ui.bucket()
        page = ui.open(ui.stream(bucket, content_type="text/plain"))
        expect(page.locator(".pane .pill")).to_have_text("Live")
        for text in (b"one", b"two\r\nlines", b"three"):
            ui.append(bucket, text, content_type="text/plain")
        expect(ui.messages()).to_have_count(3)
        expect(ui.messages().nth(1).locator("pre")).to_have_text("two\nlines")

    @pytest.mark.slow
    def test_the_page_keeps_a_bounded_number_of_messages(self, ui: Ui) -> None:
        bucket = ui.bucket()
        page = ui.open(ui.stream(bucket))
        expect(page.locator(".pane .pill")).to_have_text("Live")
        for start in range(0, 3000, 60):
            ui.append(bucket, list(range(start, start + 60)))
        expect(ui.messages().last).to_have_attribute("data-number", "2999")
        assert page.locator(".messages > li").count() <= 310

    @pytest.mark.slow
    def test_a_stream_closed_or_deleted_by_another_client(self, ui: Ui) -> None:
        bucket = ui.bucket()
        page = ui.open(ui.stream(bucket, body=b"[1]"))
        expect(page.locator(".pane .pill")).to_have_text("Live")
        ui.api.close_stream(f"/{bucket}/s")
        expect(page.locator(".pane .pill")).to_have_text("Closed")
        expect(page.get_by_label("Message to append")).to_be_hidden()
        bucket = ui.bucket()
        ui.open(ui.stream(bucket, body=b"[1]"))
        expect(page.locator(".pane .pill")).to_have_text("Live")
        # A read still under way would report 404 as well.
        expect(ui.messages()).to_have_count(1)
        ui.watched.expected = ("console: Failed to load resource",)
        assert ui.api.request("DELETE", f"/{bucket}/s").status == 204
        expect(page.get_by_role("alert")).to_contain_text("This stream no longer exists")
        expect(ui.messages()).to_have_count(1)

    @pytest.mark.slow
    def test_a_stream_that_is_deleted_and_created_again(self, ui: Ui) -> None:
        bucket = ui.bucket()
        page = ui.open(ui.stream(bucket, body=b'["old"]'))
        expect(page.locator(".pane .pill")).to_have_text("Live")
        ui.watched.expected = ("console: Failed to load resource",)
        assert ui.api.request("DELETE", f"/{bucket}/s").status == 204
        ui.stream(bucket, body=b'["new"]')
        ui.open(f"#/b/{bucket}")
        page.go_back()
        expect(ui.messages()).to_have_text([re.compile("new")])
        expect(page.locator(".pane .pill")).to_have_text("Live")


class TestNavigation:
    @pytest.mark.slow
    def test_search_and_paging_of_a_thousand_streams(self, ui: Ui) -> None:
        bucket = ui.bucket()
        for at in range(1050):
            ui.api.create("text/plain", path=f"/{bucket}/user-{at:04d}")
        page = ui.open(f"#/b/{bucket}")
        rows = page.locator(".streams a")
        expect(rows).to_have_count(100)
        expect(rows.first).to_contain_text("user-0000")
        ui.button("Next →").click()
        expect(rows.first).to_contain_text("user-0100")
        ui.button("← Previous").click()
        expect(rows.first).to_contain_text("user-0000")
        expect(ui.button("← Previous")).to_be_disabled()
        page.get_by_label("Find streams").fill("user-104")
        expect(rows).to_have_count(10)
        expect(ui.button("Next →")).to_be_hidden()
        assert page.url.endswith("?prefix=user-104")
        page.reload()
        expect(rows).to_have_count(10)
        page.get_by_label("Find streams").fill("nobody")
        expect(page.locator(".streams")).to_contain_text("Nothing found")

    @pytest.mark.slow
    def test_buckets_are_found_by_prefix(self, ui: Ui) -> None:
        for at in range(120):
            assert ui.api.request("PUT", f"/many-{at:03d}").status == 201
        page = ui.open()
        page.get_by_label("Find a bucket").fill("many-")
        rows = page.locator(".buckets a")
        expect(rows).to_have_count(100)
        ui.button("More").click()
        expect(rows).to_have_count(120)
        page.get_by_label("Find a bucket").fill("many-11")
        expect(rows).to_have_count(10)
        rows.first.click()
        expect(page.get_by_role("heading", name="many-110")).to_be_visible()
        expect(page.locator(".buckets [aria-current]")).to_contain_text("many-110")

    def test_base_paths(self, ui: Ui) -> None:
        ui.api.create("text/plain", b"hello", path="/v1/stream/base/one%20%25")
        page = ui.open()
        page.get_by_role("link", name="Base paths").click()
        page.locator(".streams a", has_text="base/one %").click()
        expect(ui.messages()).to_contain_text("hello")
        expect(ui.button("Snapshot")).to_have_count(0)
        page.reload()
        expect(ui.messages()).to_contain_text("hello")
        page.go_back()
        expect(page.locator(".streams a")).to_have_count(1)

    def test_a_fork_shows_its_source(self, ui: Ui) -> None:
        source = ui.api.create("application/json", b"[1,2,3]", path="/v1/stream/forked/source")
        headers = {"Stream-Forked-From": source}
        assert ui.api.request("PUT", "/v1/stream/forked/fork", headers).status == 201
        page = ui.open("#/p/forked%2Ffork")
        expect(page.locator(".facts")).to_contain_text("forked/source before #3")
        expect(ui.messages()).to_have_count(3)

    def test_messages_are_paged_and_found_by_number(self, ui: Ui) -> None:
        bucket = ui.bucket()
        page = ui.open(ui.stream(bucket, body=json.dumps(list(range(500))).encode()))
        numbers = ui.messages()
        expect(numbers.last).to_have_attribute("data-number", "499")
        expect(numbers).to_have_count(50)
        ui.button("Older messages").click()
        expect(numbers.first).to_have_attribute("data-number", "400")
        ui.button("Newer messages").click()
        expect(numbers.first).to_have_attribute("data-number", "450")
        ui.button("First messages").click()
        expect(numbers.first).to_have_attribute("data-number", "0")
        expect(ui.button("Older messages")).to_be_disabled()
        page.get_by_label("Go to message number").fill("123")
        page.keyboard.press("Enter")
        expect(numbers.first).to_have_attribute("data-number", "123")
        expect(page.locator(".where")).to_have_text("123–172 of 500")
        # An older page does not change while messages arrive.
        ui.append(bucket, "new")
        expect(page.locator(".news")).to_contain_text("new messages")
        expect(numbers.first).to_have_attribute("data-number", "123")
        ui.button("Newest messages").click()
        expect(numbers.last).to_contain_text("new")

    @pytest.mark.slow
    def test_a_stream_or_bucket_that_does_not_exist(self, ui: Ui) -> None:
        ui.watched.expected = ("console: Failed to load resource",)
        page = ui.open(f"#/b/{ui.bucket()}/nothing")
        expect(page.locator("main")).to_contain_text("Stream not found")
        page.get_by_role("link", name="Back to the list").click()
        expect(page.locator(".streams")).to_contain_text("No streams yet")
        ui.open("#/b/no-such-bucket")
        expect(page.get_by_role("alert")).to_contain_text("bucket")


class TestViews:
    @pytest.mark.slow
    def test_json_text_and_hex(self, ui: Ui) -> None:
        page = ui.open(ui.stream(ui.bucket(), body=b'[{"a":[1,{"b":null}],"c":1e2,"d":{}}]'))
        pre = ui.messages().locator("pre")
        expect(pre).to_have_text(
            '{\n  "a": [\n    1,\n    {\n      "b": null\n    }\n  ],\n  "c": 1e2,\n  "d": {}\n}'
        )
        ui.button("Text").click()
        expect(pre).to_have_text('{"a":[1,{"b":null}],"c":1e2,"d":{}}')
        ui.button("Hex").click()
        expect(pre).to_contain_text("7b 22 61 22")
        page.reload()
        expect(pre).to_contain_text("7b 22 61 22")

    @pytest.mark.slow
    def test_content_that_is_not_utf_8_is_shown_as_bytes(self, ui: Ui) -> None:
        ui.open(ui.stream(ui.bucket(), content_type="text/plain", body=b"\xff\xfe\x00ABC"))
        expect(ui.messages().locator("pre")).to_contain_text("ff fe 00 41 42 43")
        ui.button("JSON").click()
        expect(ui.messages()).to_contain_text("Not UTF-8, shown as bytes.")

    @pytest.mark.slow
    def test_long_messages_are_truncated_until_expanded(self, ui: Ui) -> None:
        bucket = ui.bucket()
        ui.open(ui.stream(bucket, content_type="text/plain", body=b"x" * 300_000 + b"end"))
        pre = ui.messages().locator("pre")
        expect(pre).to_have_text("x" * 4000)
        ui.button("Show all (293 KiB)").click()
        expect(pre).to_contain_text("xend")

    @pytest.mark.slow
    def test_a_large_message_is_loaded_on_request(self, ui: Ui) -> None:
        bucket = ui.bucket()
        ui.open(ui.stream(bucket, content_type="text/plain", body=b"y" * (3 << 20)))
        ui.button("Load this message (3.0 MiB)").click()
        expect(ui.messages().locator("pre")).to_have_text("y" * 4000)

    @pytest.mark.slow
    def test_deeply_nested_json(self, ui: Ui) -> None:
        deep = "[" * 100 + "1" + "]" * 100
        ui.open(ui.stream(ui.bucket(), body=f"[{deep}]".encode()))
        expect(ui.messages().locator("pre")).to_contain_text("[")
        ui.button("Show all (201 B)").click()
        expect(ui.messages().locator("pre")).to_contain_text("1")
        ui.page.evaluate(
            """async () => {
              const { pretty, elements } = await import("./json.js");
              const deep = "[".repeat(200000) + "]".repeat(200000);
              if (elements(`[${deep}, 2]`).length !== 2) throw new Error("elements");
              if (pretty(deep, 4000).complete) throw new Error("pretty");
            }"""
        )

    @pytest.mark.slow
    def test_producers_and_remaining_ttl(self, ui: Ui) -> None:
        bucket = ui.bucket()
        address = ui.stream(bucket, content_type="text/plain", Stream_TTL="90")
        for name in ("worker-b", "worker-a"):
            claim = {"Producer-Id": name, "Producer-Epoch": "4", "Producer-Seq": "0"}
            assert ui.api.post(f"/{bucket}/s", b"x", claim).status == 200
        page = ui.open(address)
        facts = page.locator(".facts")
        expect(facts).to_contain_text("1 min")
        before = facts.inner_text()
        page.wait_for_function(
            "before => document.querySelector('.facts').innerText !== before", arg=before
        )
        page.get_by_text("Producers").click()
        expect(page.locator("tbody tr")).to_have_text([re.compile("worker-a"), re.compile("-b")])

    def test_a_snapshot_is_published_and_shown(self, ui: Ui) -> None:
        bucket = ui.bucket()
        page = ui.open(ui.stream(bucket, body=b"[1,2,3,4]"))
        expect(ui.messages()).to_have_count(4)
        ui.button("Snapshot").click()
        ui.dialog().get_by_label("Before message number").fill("3")
        ui.dialog().get_by_label("Content", exact=True).fill('{"sum": 6,}')
        ui.button("Publish").click()
        expect(ui.dialog().get_by_role("alert")).to_contain_text("not JSON")
        ui.dialog().get_by_label("Content", exact=True).fill('{"sum": 6}')
        ui.button("Publish").click()
        expect(ui.dialog()).to_have_count(0)
        expect(ui.messages()).to_have_count(1)
        expect(ui.messages()).to_have_attribute("data-number", "3")
        ui.button("Before #3").click()
        expect(ui.dialog().locator("pre")).to_have_text('{\n  "sum": 6\n}')
        page.keyboard.press("Escape")
        expect(ui.dialog()).to_have_count(0)

    def test_the_dashboard_shows_the_append_rate(self, ui: Ui) -> None:
        bucket = ui.bucket()
        ui.stream(bucket)
        page = ui.open("#/dashboard")
        chart = page.locator(".chart", has_text="Messages appended")

        def drawn() -> bool:
            ui.append(bucket, [1] * 100)
            return re.fullmatch(r"[1-9][0-9.]*k?/s", chart.locator(".now").inner_text()) is not None

        until = time.monotonic() + 60
        while not drawn():
            assert time.monotonic() < until, chart.inner_text()
            page.wait_for_timeout(50)
        expect(page.locator(".chart")).to_have_count(6)


class TestAccessibility:
    def test_keyboard_only(self, ui: Ui) -> None:
        bucket = ui.bucket()
        for name in ("one", "two", "three"):
            ui.stream(bucket, name)
        page = ui.open(f"#/b/{bucket}")
        expect(page.locator(".streams a")).to_have_count(3)
        keys = page.keyboard
        keys.press("Tab")
        expect(page.locator("#skip")).to_be_focused()
        keys.press("Enter")
        expect(page.locator("#main")).to_be_focused()
        keys.press("/")
        expect(page.get_by_label("Find streams")).to_be_focused()
        keys.press("ArrowDown")
        keys.press("ArrowDown")
        keys.press("End")
        keys.press("ArrowUp")
        expect(page.locator(".streams a").nth(1)).to_be_focused()
        keys.press("Enter")
        expect(page.get_by_role("heading", name="three")).to_be_visible()
        expect(page.locator("#main")).to_be_focused()
        ui.button("Delete").focus()
        keys.press("Enter")
        expect(ui.dialog().get_by_role("textbox")).to_be_visible()
        keys.press("Escape")
        expect(ui.dialog()).to_have_count(0)
        expect(ui.button("Delete")).to_be_focused()
        outline = page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
        assert outline == "solid"

    @pytest.mark.slow
    def test_no_view_is_wider_than_a_phone(self, open_ui: OpenUi, server: ServerProcess) -> None:
        ui = open_ui(server, viewport={"width": 360, "height": 640})
        ui.watched.expected = ("console: Failed to load resource",)
        bucket = ui.bucket()
        stream = ui.stream(bucket, "w" * 100, "text/plain; " + "p" * 200, b"m" * 1000)
        views = {
            "#/": ".buckets a",
            "#/dashboard": ".chart",
            "#/p": "h1",
            f"#/b/{bucket}": ".streams a",
            f"{stream}-missing": ".empty",
            stream: ".messages [data-number]",
        }
        for address, ready in views.items():
            ui.open(address)
            expect(ui.page.locator(ready).first).to_be_visible()
            assert overflow(ui.page) <= 0, address
        for view in ("Hex", "Text"):
            ui.button(view).click()
            assert overflow(ui.page) <= 0, view

    @pytest.mark.slow
    def test_a_redraw_keeps_the_focus(self, ui: Ui) -> None:
        bucket = ui.bucket()
        address = ui.stream(bucket, body=b"[1]")
        tail = ui.api.tail(f"/{bucket}/s")
        published = ui.api.request("PUT", f"/{bucket}/s/snapshot/{tail}", {}, b"x")
        assert published.status == 204
        page = ui.open(address)
        ui.button("Before #1").focus()
        ui.append(bucket, [2, 3])
        expect(page.locator(".facts")).to_contain_text("2 retained")
        expect(ui.button("Before #1")).to_be_focused()

    @pytest.mark.slow
    def test_light_and_dark_themes(self, open_ui: OpenUi, server: ServerProcess) -> None:
        ui = open_ui(server, color_scheme="dark")
        page = ui.open()
        background = "getComputedStyle(document.documentElement).backgroundColor"
        dark = page.evaluate(background)
        ui.button("Theme: Auto").click()
        light = page.evaluate(background)
        assert dark != light
        page.reload()
        assert page.evaluate(background) == light
        ui.button("Theme: Light").click()
        assert page.evaluate(background) == dark


class TestMountsAndTokens:
    def test_mounted_under_a_path_of_another_app(self, open_ui: OpenUi, tmp_path: Path) -> None:
        with AsgiServerProcess(tmp_path, "--engine", "memory") as server:
            ui = open_ui(server)
            bucket = ui.bucket()
            ui.page.goto(f"{server.url}/-/ui")
            assert ui.page.url == f"{server.url}/-/ui/"
            page = ui.open(ui.stream(bucket, body=b"[1]"))
            expect(ui.messages()).to_have_count(1)
            expect(page.locator(".pane .pill")).to_have_text("Live")
            page.get_by_label("Message to append").fill("2")
            ui.button("Append").click()
            expect(ui.messages()).to_have_count(2)
            ui.open("#/dashboard")
            expect(page.locator(".chart", has_text="Live readers").locator(".now")).to_have_text(
                re.compile(r"^\d+$")
            )
            # uvicorn waits for open event streams at its end: leave the page first.
            page.goto("about:blank")
            ui.watched.problems = [
                item for item in ui.watched.problems if "about:blank" not in item
            ]

    @pytest.mark.slow
    def test_a_link_cannot_send_requests_outside_the_mount(
        self, open_ui: OpenUi, tmp_path: Path
    ) -> None:
        """Anyone can make a link, and the page sends its token with every request."""
        with AsgiServerProcess(tmp_path, "--engine", "memory") as server:
            ui = open_ui(server)
            seen: list[str] = []
            ui.page.on("request", lambda request: seen.append(request.url))
            for name in ("..", ".", "%2E%2E", "%2e"):
                page = ui.open(f"#/b/{name}")
                page.reload()
                alert = page.locator("main [role=alert]")
                expect(alert).to_contain_text("Invalid name")
                ui.button("Try again", alert).click()
                expect(alert).to_contain_text("Invalid name")
                # Actions of the view are refused as well.
                ui.button("New stream").click()
                ui.dialog().get_by_label("Name").fill("streams")
                ui.button("Create stream").click()
                expect(ui.dialog().get_by_role("alert")).to_contain_text("cannot be empty")
                page.keyboard.press("Escape")
            assert len(seen) > 8
            assert [url for url in seen if not url.startswith(f"{server.url}/-/")] == []

    @pytest.mark.slow
    def test_a_late_401_keeps_what_is_typed_in_the_sign_in_form(
        self, open_ui: OpenUi, tmp_path: Path
    ) -> None:
        """A second 401 does not draw the form again."""
        file = tmp_path / "access.toml"
        add_token(file, "root", ["*:/"])
        options = ("--engine", "memory", "--access", str(file))
        with ServerProcess(tmp_path / "data", *options) as server:
            ui = open_ui(server)
            ui.watched.expected = ("console: Failed to load resource",)
            held: list[Route] = []
            ui.page.route("**/-/buckets*", lambda route: held.append(route))
            page = ui.open("#/b/room/a")
            expect(page.get_by_role("heading", name="Sign in")).to_be_visible()
            page.get_by_label("Token").fill("half a token")
            with page.expect_response("**/-/buckets*") as late:
                held[0].continue_()
            assert late.value.status == 401
            late.value.finished()
            # A response that comes later: by now the page has handled the late one.
            assert page.evaluate("fetch('../health').then((response) => response.status)") == 200
            expect(page.get_by_label("Token")).to_have_value("half a token")

    def test_sign_in_with_a_token_and_sign_out(self, open_ui: OpenUi, tmp_path: Path) -> None:
        file = tmp_path / "access.toml"
        _, root = add_token(file, "root", ["*:/"])
        _, reader = add_token(file, "reader", ["read:/room"])
        options = ("--engine", "memory", "--access", str(file))
        with ServerProcess(tmp_path / "data", *options) as server:
            ui = open_ui(server)
            ui.watched.expected = ("console: Failed to load resource",)
            seen: list[str] = []
            ui.page.on("request", lambda request: seen.append(request.url))
            bearer = {"Authorization": f"Bearer {root}"}
            assert ui.api.request("PUT", "/room", bearer).status == 201
            json_type = {"Content-Type": "application/json"}
            assert ui.api.request("PUT", "/room/a", {**bearer, **json_type}, b"[1]").status == 201
            page = ui.open("#/b/room/a")
            expect(page.get_by_role("heading", name="Sign in")).to_be_visible()
            page.get_by_label("Token").fill("no-token")
            page.keyboard.press("Enter")
            expect(page.locator("main")).to_contain_text("The server rejected this token.")
            page.get_by_label("Token").fill(reader)
            ui.button("Sign in").click()
            expect(ui.messages()).to_have_count(1)
            expect(page.locator(".pane .pill")).to_have_text("Live")
            # A rejected append is shown, and the text stays.
            page.get_by_label("Message to append").fill("2")
            ui.button("Append").click()
            expect(page.locator(".compose .wrong")).to_contain_text("has no grant of append")
            expect(page.get_by_label("Message to append")).to_have_value("2")
            page.reload()
            expect(ui.messages()).to_have_count(1)
            ui.button("Sign out").click()
            expect(page.get_by_role("heading", name="Sign in")).to_be_visible()
            assert (
                page.evaluate("JSON.stringify([{...localStorage}, {...sessionStorage}])").find(
                    reader
                )
                == -1
            )
            assert not [url for url in seen if reader in url or root in url]
