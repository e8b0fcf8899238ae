"""The page's view of subscriptions, in a real browser."""

from __future__ import annotations

import json

from playwright.sync_api import expect

from tests.ui.conftest import Ui
from tests.ui.test_page import overflow

CONFIG = {"type": "pull-wake", "pattern": "*", "wake_stream": "wakes"}


def test_subscriptions_show_their_lag_status_and_last_error(ui: Ui) -> None:
    page = ui.open("#/subscriptions")
    bucket = ui.bucket()
    root = f"{ui.server.base_path}/{bucket}/__ds/subscriptions"
    hostile = "<img src=x onerror=alert(1)>"
    assert ui.api.request("PUT", f"{root}/builds", {}, _body(description=hostile)).status == 201
    row = page.locator(".subscription", has_text="builds")
    expect(row.locator(".pill")).to_have_text("active")
    expect(row).to_contain_text(f"bucket {bucket} · pattern * · wake stream wakes · {hostile}")
    expect(row.locator(".amount")).to_have_text("0")
    ui.stream(bucket, "a", body=b"[1]")
    ui.stream(bucket, "b", body=b"[1]")
    expect(row.locator(".amount")).to_have_text("2")
    claimed = ui.api.request("POST", f"{root}/builds/claim", {}, b'{"worker":"worker-7"}')
    assert claimed.status == 200
    expect(row).to_contain_text("held by worker-7")
    # Nobody listens on this port.
    hook = {"type": "webhook", "pattern": "*", "webhook": {"url": "http://127.0.0.1:9/hook"}}
    body = json.dumps(hook).encode()
    assert ui.api.request("PUT", f"{root}/hook", {}, body).status == 201
    ui.append(bucket, 2, "a")
    failed = page.locator(".subscription", has_text="hook")
    expect(failed.locator(".pill")).to_have_text("failed")
    expect(failed.locator(".notice")).to_contain_text("cannot connect")
    page.set_viewport_size({"width": 360, "height": 800})
    assert overflow(page) == 0
    for name in ("builds", "hook"):
        ui.api.request("DELETE", f"{root}/{name}")
    expect(failed).to_have_count(0)


def _body(**more: str) -> bytes:
    return json.dumps({**CONFIG, **more}).encode()
