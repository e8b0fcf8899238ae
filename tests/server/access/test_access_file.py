"""The access file: its errors name the key, and a reload is accepted as a whole or not at all."""

from __future__ import annotations

from pathlib import Path

import pytest
import structlog

from tailrace.server.guard.access import Access, AccessFileInvalid, admit
from tailrace.server.guard.access.errors import CredentialsRefused, Forbidden, Unauthenticated
from tailrace.server.routing.target import resolve
from tests.server.access.samples import AccessToml, bearer, new_request

HASH = "sha256:" + "0" * 64
TOKEN = f'[[token]]\nid = "abcd"\nhash = "{HASH}"\ngrants = []\n'
JWT = 'issuer = "a"\naudience = "b"\n'


@pytest.fixture
def toml(tmp_path: Path) -> AccessToml:
    return AccessToml(tmp_path / "access.toml")


MISTAKES = [
    ("tokens = 1", "unknown key 'tokens'; known: token, anonymous, jwt"),
    ("token = 1", "written [[token]]"),
    ("[token]\nid = 'abcd'", "written [[token]]"),
    ("[[token]]\nname = 'a'", "[[token]] number 1: id is missing"),
    ("[[token]]\nid = 'AB/C'", "[[token]] AB/C: id must be 4 to 32 characters of a-z and 0-9"),
    ("[[token]]\nid = 'abcd'", "[[token]] abcd: hash is missing"),
    ("[[token]]\nid = 'abcd'\nhash = 'md5:0'", "[[token]] abcd: hash must be sha256: and 64"),
    (f"[[token]]\nid = 'abcd'\nhash = '{HASH.upper()}'", "[[token]] abcd: hash must be sha256:"),
    (f"[[token]]\nid = 'abcd'\nhash = '{HASH}'", "[[token]] abcd: grants is missing"),
    (TOKEN.replace("[]", "['read:/a']"), "[[token]] abcd: '/a' is not a location"),
    (TOKEN.replace("[]", "'read:/chat'"), "[[token]] abcd: grants must be a list"),
    (TOKEN.replace("[]", "[1]"), "[[token]] abcd: grants must be text, not 1"),
    (TOKEN + "grant = []", "[[token]] abcd: unknown key 'grant'"),
    (TOKEN + "name = 1", "[[token]] abcd: name must be text, not 1"),
    (TOKEN + "expires = '2030-01-01'", "[[token]] abcd: expires: must be a time"),
    (TOKEN + "expires = 12:00:00", "[[token]] abcd: expires: must be a time"),
    (TOKEN + "created = 1", "[[token]] abcd: created: must be a time"),
    (TOKEN + TOKEN, "[[token]] abcd: the id is not unique"),
    ("anonymous = []", "[anonymous] must be a table"),
    ("[anonymous]\ngrant = []", "[anonymous]: unknown key 'grant'"),
    ("[anonymous]", "[anonymous]: grants is missing"),
    ("[jwt]\nissuer = 'a'", "[jwt]: audience is missing"),
    ("[jwt]\nurl = 'a'", "[jwt]: unknown key 'url'; known: issuer, audience, jwks"),
    ("[[jwt]]", "[jwt] must be a table"),
    ("[jwt", "line 1"),
]
JWT_MISTAKES = [
    ('audience = "b"\njwks = "keys.json"', "[jwt]: issuer is missing"),
    (JWT + 'jwks = "http://login.example.org/keys"', "[jwt]: jwks must be the path of a file or"),
    (JWT + 'jwks = "ftp://login.example.org/keys"', "https://"),
    (JWT + 'jwks = "file:///etc/passwd"', "https://"),
    (JWT + 'jwks = "https://"', "https://"),
    (JWT + 'jwks = "https://[/"', "https://"),
    (JWT + 'jwks = "nothing.json"', "nothing.json"),
    (JWT + 'jwks = "access.toml"', "is not JSON"),
    (JWT + 'jwks = ""', "[jwt]: jwks must be text of length >= 1"),
    ('issuer = "a"\naudience = []\njwks = "keys.json"', "[jwt]: audience must be"),
    (JWT + 'algorithms = ["none"]\njwks = "keys.json"', "EdDSA, HS256, HS384, HS512, not 'none'"),
    (JWT + 'algorithms = ["rs256"]\njwks = "keys.json"', "algorithms must be one of RS256, "),
    (JWT + 'leeway_s = -1\njwks = "keys.json"', "[jwt]: leeway_s must be a number >= 0"),
    (JWT + 'leeway_s = true\njwks = "keys.json"', "[jwt]: leeway_s must be a number, not True"),
    (JWT + 'scope_claim = ""\njwks = "keys.json"', "[jwt]: scope_claim must be text of length"),
]


def test_an_error_names_the_file_and_the_key(toml: AccessToml) -> None:
    key = b'{"keys": [{"kty": "oct", "k": "%s"}]}' % (b"A" * 43)
    (toml.path.parent / "keys.json").write_bytes(key)
    for text, named in MISTAKES + [("[jwt]\n" + text, named) for text, named in JWT_MISTAKES]:
        toml.put("text", text)
        with pytest.raises(AccessFileInvalid) as caught:
            toml.load()
        assert named in str(caught.value)
        assert str(toml.path) in str(caught.value)


def test_the_error_of_a_missing_file_says_how_to_make_one(tmp_path: Path) -> None:
    with pytest.raises(AccessFileInvalid, match="tailrace token new --file"):
        Access(tmp_path / "access.toml")


def test_a_file_that_is_not_utf8_is_rejected_and_an_empty_one_admits_nobody(tmp_path: Path) -> None:
    path = tmp_path / "access.toml"
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(AccessFileInvalid, match="cannot be read"):
        Access(path)
    path.write_bytes(b"")
    with pytest.raises(Unauthenticated):
        Access(path).identify(new_request())


def test_a_file_that_other_users_can_access_is_logged(toml: AccessToml) -> None:
    for mode, warnings in ((0o600, 0), (0o400, 0), (0o640, 1), (0o602, 1)):
        toml.path.chmod(mode)
        with structlog.testing.capture_logs() as lines:
            toml.load()
        assert [line["log_level"] for line in lines] == ["warning"] * warnings


def test_a_reload_adds_and_removes_tokens(toml: AccessToml) -> None:
    kept, gone = toml.token("read:/chat-rooms"), toml.token("read:/chat-rooms")
    access = toml.load()
    identified = {name: access.identify(new_request(headers=bearer(name))) for name in (kept, gone)}
    toml.remove(gone)
    new = toml.token("append:/chat-rooms")
    access.reload()
    assert access.is_valid(identified[kept])
    assert not access.is_valid(identified[gone])
    with pytest.raises(CredentialsRefused):
        access.identify(new_request(headers=bearer(gone)))
    assert access.identify(new_request(headers=bearer(new))).id.startswith("token:")


def test_a_token_whose_grants_changed_must_identify_again(toml: AccessToml) -> None:
    text = toml.token("read,append:/chat-rooms")
    access = toml.load()
    before = access.identify(new_request(headers=bearer(text)))
    toml.put(text, toml.path.read_text().replace("read,append", "append"))
    access.reload()
    assert not access.is_valid(before)
    after = access.identify(new_request(headers=bearer(text)))
    assert access.is_valid(after)
    with pytest.raises(Forbidden):
        admit(access, new_request(headers=bearer(text)), resolve(b"/chat-rooms/general"))


def test_a_reload_of_an_invalid_file_changes_nothing(toml: AccessToml) -> None:
    text = toml.token("read:/chat-rooms")
    access = toml.load()
    before = access.identify(new_request(headers=bearer(text)))
    toml.put("mistake", "[[token]]\nid = 1")
    with pytest.raises(AccessFileInvalid):
        access.reload()
    assert access.is_valid(before)
    assert access.identify(new_request(headers=bearer(text))) is before
    toml.path.unlink()
    with pytest.raises(AccessFileInvalid):
        access.reload()
    assert access.is_valid(before)


def test_anonymous_grants_can_be_revoked(toml: AccessToml) -> None:
    toml.put("anonymous", '[anonymous]\ngrants = ["read:/chat-rooms"]')
    access = toml.load()
    before = access.identify(new_request())
    assert access.is_valid(before)
    toml.put("anonymous", "[anonymous]\ngrants = []")
    access.reload()
    assert not access.is_valid(before)
    toml.remove("anonymous")
    access.reload()
    assert not access.is_valid(before)
    with pytest.raises(Unauthenticated):
        access.identify(new_request())
