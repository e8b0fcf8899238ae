"""The access file: what is wrong with it is said, with the place; a reload takes all or nothing."""

from __future__ import annotations

from pathlib import Path

import pytest
import structlog

from tailrace.server.guard.access import Access, AccessFileInvalid, admit
from tailrace.server.guard.access.errors import CredentialsRefused, Forbidden, Unauthenticated
from tailrace.server.target import resolve
from tests.server.access.samples import AccessToml, asking, bearer

HASH = "sha256:" + "0" * 64
TOKEN = f'[[token]]\nid = "abcd"\nhash = "{HASH}"\ngrants = []\n'


@pytest.fixture
def toml(tmp_path: Path) -> AccessToml:
    return AccessToml(tmp_path / "access.toml")


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("tokens = 1", "unknown key 'tokens'"),
        ("token = 1", "[[token]]"),
        ("[token]\nid = 'abcd'", "[[token]]"),
        ("[[token]]\nname = 'a'", "[[token]] number 1: id"),
        ("[[token]]\nid = 'AB/C'", "[[token]] number 1: id"),
        ("[[token]]\nid = 'abcd'", "[[token]] abcd: hash"),
        ("[[token]]\nid = 'abcd'\nhash = 'md5:0'", "[[token]] abcd: hash"),
        (f"[[token]]\nid = 'abcd'\nhash = '{HASH.upper()}'", "[[token]] abcd: hash"),
        (f"[[token]]\nid = 'abcd'\nhash = '{HASH}'", "[[token]] abcd: grants"),
        (TOKEN.replace("[]", "['read:/a']"), "[[token]] abcd: '/a' is not a place"),
        (TOKEN.replace("[]", "'read:/chat'"), "[[token]] abcd: grants"),
        (TOKEN.replace("[]", "[1]"), "[[token]] abcd: grants"),
        (TOKEN + "grant = []", "[[token]] abcd: unknown key 'grant'"),
        (TOKEN + "name = 1", "[[token]] abcd: name"),
        (TOKEN + "expires = '2030-01-01'", "[[token]] abcd: expires"),
        (TOKEN + "expires = 12:00:00", "[[token]] abcd: expires"),
        (TOKEN + "created = 1", "[[token]] abcd: created"),
        (TOKEN + TOKEN, "abcd is there twice"),
        ("anonymous = []", "[anonymous]"),
        ("[anonymous]\ngrant = []", "[anonymous]: unknown key 'grant'"),
        ("[anonymous]", "[anonymous]: grants"),
        ("[jwt]\nissuer = 'a'", "[jwt]: jwks"),
        ("[jwt]\nurl = 'a'", "[jwt]: unknown key 'url'"),
        ("[[jwt]]", "[jwt]"),
        ("[jwt", "line 1"),
    ],
)
def test_a_mistake_is_named_with_its_place(toml: AccessToml, text: str, named: str) -> None:
    toml.put("text", text)
    with pytest.raises(AccessFileInvalid) as caught:
        toml.load()
    assert named in str(caught.value)
    assert str(toml.path) in str(caught.value)


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ('jwks = "keys.json"', "issuer"),
        ('jwks = "http://login.example.org/keys"', "https://"),
        ('jwks = "ftp://login.example.org/keys"', "https://"),
        ('jwks = "file:///etc/passwd"', "https://"),
        ('jwks = "https://"', "https://"),
        ('jwks = "https://[/"', "https://"),
        ('jwks = "nothing.json"', "nothing.json"),
        ('jwks = "access.toml"', "is not JSON"),
        ('issuer = "a"\naudience = []\njwks = "keys.json"', "audience"),
        ('issuer = "a"\naudience = "b"\nalgorithms = ["none"]\njwks = "keys.json"', "'none'"),
        ('issuer = "a"\naudience = "b"\nalgorithms = ["rs256"]\njwks = "keys.json"', "'rs256'"),
        ('issuer = "a"\naudience = "b"\nleeway_s = -1\njwks = "keys.json"', "leeway_s"),
        ('issuer = "a"\naudience = "b"\nleeway_s = true\njwks = "keys.json"', "leeway_s"),
        ('issuer = "a"\naudience = "b"\nscope_claim = ""\njwks = "keys.json"', "scope_claim"),
    ],
)
def test_a_mistake_about_jwts_is_named(toml: AccessToml, text: str, named: str) -> None:
    key = b'{"keys": [{"kty": "oct", "k": "%s"}]}' % (b"A" * 43)
    (toml.path.parent / "keys.json").write_bytes(key)
    toml.put("jwt", "[jwt]\n" + text)
    with pytest.raises(AccessFileInvalid, match=r"\[jwt\]") as caught:
        toml.load()
    assert named in str(caught.value)


def test_a_missing_file_says_how_to_make_one(tmp_path: Path) -> None:
    with pytest.raises(AccessFileInvalid, match="tailrace token new --file"):
        Access.load(tmp_path / "access.toml")


@pytest.mark.parametrize("bad", [b"\xff\xfe", b""])
def test_what_is_not_utf8_is_refused_and_nothing_lets_nobody_in(tmp_path: Path, bad: bytes) -> None:
    path = tmp_path / "access.toml"
    path.write_bytes(bad)
    if bad:
        with pytest.raises(AccessFileInvalid, match="cannot be read"):
            Access.load(path)
    else:
        with pytest.raises(Unauthenticated):
            Access.load(path).identify(asking())


@pytest.mark.parametrize(("mode", "warned"), [(0o600, 0), (0o400, 0), (0o640, 1), (0o602, 1)])
def test_a_file_that_others_have_rights_on_is_warned_of(
    toml: AccessToml, mode: int, warned: int
) -> None:
    toml.path.chmod(mode)
    with structlog.testing.capture_logs() as lines:
        toml.load()
    assert [line["log_level"] for line in lines] == ["warning"] * warned


def test_a_reload_changes_who_may_do_what(toml: AccessToml) -> None:
    kept, gone = toml.token("read:/chat-rooms"), toml.token("read:/chat-rooms")
    access = toml.load()
    asked = {name: access.identify(asking(headers=bearer(name))) for name in (kept, gone)}
    toml.remove(gone)
    new = toml.token("append:/chat-rooms")
    access.reload()
    assert access.is_valid(asked[kept])
    assert not access.is_valid(asked[gone])
    with pytest.raises(CredentialsRefused):
        access.identify(asking(headers=bearer(gone)))
    assert access.identify(asking(headers=bearer(new))).id.startswith("token:")


def test_a_token_with_other_grants_is_not_what_it_was(toml: AccessToml) -> None:
    text = toml.token("read,append:/chat-rooms")
    access = toml.load()
    before = access.identify(asking(headers=bearer(text)))
    toml.put(text, toml.path.read_text().replace("read,append", "append"))
    access.reload()
    assert not access.is_valid(before)
    after = access.identify(asking(headers=bearer(text)))
    assert access.is_valid(after)
    with pytest.raises(Forbidden):
        admit(access, asking(headers=bearer(text)), resolve(b"/chat-rooms/general"))


def test_a_reload_of_a_file_with_a_mistake_changes_nothing(toml: AccessToml) -> None:
    text = toml.token("read:/chat-rooms")
    access = toml.load()
    before = access.identify(asking(headers=bearer(text)))
    toml.put("mistake", "[[token]]\nid = 1")
    with pytest.raises(AccessFileInvalid):
        access.reload()
    assert access.is_valid(before)
    assert access.identify(asking(headers=bearer(text))) is before
    toml.path.unlink()
    with pytest.raises(AccessFileInvalid):
        access.reload()
    assert access.is_valid(before)


def test_anonymous_rights_can_be_taken_away(toml: AccessToml) -> None:
    toml.put("anonymous", '[anonymous]\ngrants = ["read:/chat-rooms"]')
    access = toml.load()
    before = access.identify(asking())
    assert access.is_valid(before)
    toml.put("anonymous", "[anonymous]\ngrants = []")
    access.reload()
    assert not access.is_valid(before)
    toml.remove("anonymous")
    access.reload()
    assert not access.is_valid(before)
    with pytest.raises(Unauthenticated):
        access.identify(asking())
