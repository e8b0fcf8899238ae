"""Conditional writes (RFC 9110, 13.1) are honoured or refused, never ignored."""

from __future__ import annotations

import pytest

from tests.support.looping import for_each
from tests.support.streams import Api, check_problem

pytestmark = pytest.mark.every_kind

NEW = {"If-None-Match": "*"}
TEXT = {"Content-Type": "text/plain"}


def test_put_creates_only_what_does_not_exist(api: Api) -> None:
    path = api.path()
    created = api.request("PUT", path, {**TEXT, **NEW}, b"first")
    assert created.status == 201
    before = api.facts(path)
    for headers, body in ((TEXT, b"first"), (TEXT, b"second"), ({"Content-Type": "text/csv"}, b"")):
        response = api.request("PUT", path, {**headers, **NEW}, body)
        check_problem(response, 412, "condition-failed")
    assert api.facts(path) == before
    assert api.request("PUT", path, TEXT).status == 200


def test_put_creates_again_after_a_deletion(api: Api) -> None:
    path = api.create()
    assert api.request("DELETE", path).status == 204
    assert api.request("PUT", path, {**TEXT, **NEW}).status == 201


def test_a_request_that_is_invalid_anyway_is_400(api: Api) -> None:
    path = api.create()
    check_problem(api.request("PUT", path, {**NEW, "Stream-TTL": "x"}), 400)


def test_put_of_a_bucket(api: Api) -> None:
    path = f"{api.server.base_path}/conditional-{api.path()[-6:].replace('/', '-')}"
    assert api.request("PUT", path, NEW).status == 201
    check_problem(api.request("PUT", path, NEW), 412, "condition-failed")
    check_problem(api.request("PUT", path), 409)


def test_if_match_any_is_true_for_what_exists(api: Api) -> None:
    path = api.create(body=b"a")
    tag = {**TEXT, "If-Match": "*"}
    assert api.request("POST", path, tag, b"b").status == 204
    assert api.request("DELETE", path, tag).status == 204
    check_problem(api.request("POST", path, tag, b"b"), 404)
    check_problem(api.request("DELETE", path, tag), 404)


@for_each(
    ("method", "condition"),
    [
        ("PUT", {"If-Match": "*"}),
        ("PUT", {"If-Match": '"x"'}),
        ("PUT", {"If-None-Match": '"x"'}),
        ("PUT", {"If-None-Match": ""}),
        ("POST", {"If-Match": '"x"'}),
        ("POST", {"If-Match": ""}),
        ("POST", {"If-None-Match": "*"}),
        ("POST", {"If-None-Match": '"x", "y"'}),
        ("DELETE", {"If-Match": '"x"'}),
        ("DELETE", {"If-None-Match": "*"}),
    ],
)
def test_what_cannot_be_evaluated_is_501(api: Api, method: str, condition: dict[str, str]) -> None:
    path = api.create(body=b"a")
    before = api.facts(path)
    response = api.request(method, path, {**TEXT, **condition}, b"b")
    problem = check_problem(response, 501, "condition-unsupported")
    assert next(iter(condition)) in problem["detail"]
    assert api.facts(path) == before
    new = api.path()
    check_problem(api.request(method, new, {**TEXT, **condition}, b"b"), 501)
    assert api.head(new).status == 404


@for_each("condition", [NEW, {"If-Match": "*"}, {"If-None-Match": '"x"'}])
@for_each("size", [1, 2 << 20])
def test_conditions_on_snapshots_are_501(api: Api, condition: dict[str, str], size: int) -> None:
    bucket = api.new_bucket()
    stream = api.in_bucket(bucket, "s")
    api.create(path=stream)
    path = f"{stream}/snapshot/{api.append(stream, b'x')}"
    response = api.request("PUT", path, {**TEXT, **condition}, b"s" * size)
    check_problem(response, 501, "condition-unsupported")
    check_problem(api.get(f"{stream}/snapshot"), 404, "snapshot-not-found")


def test_reads_with_conditions_are_as_before(api: Api) -> None:
    path = api.create(body=b"a")
    etag = api.get(path).headers["etag"]
    assert api.get(path, headers={"If-None-Match": etag}).status == 304
    assert api.get(path, headers={"If-None-Match": '"x"'}).status == 200
