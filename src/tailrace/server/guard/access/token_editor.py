"""
Changes to the access file, as `tailrace token` makes them.

Rule 1: the file is people's. Comments, order and what stands between tokens are kept.

Rule 2: it is replaced at once and whole: a server that reloads meanwhile reads the old one or the
new one. Owner and mode stay; a new file is its owner's alone.

Rule 3: one at a time. The lock is on the directory, since the file itself is replaced.
"""

import fcntl
import os
import stat
import tempfile
import tomllib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import tomlkit
from tomlkit.exceptions import TOMLKitError

from tailrace.server.guard.access.access_file import AccessFileInvalid, parse_access_file
from tailrace.server.guard.access.grants import parse_grant
from tailrace.server.guard.access.tokens import hash_of, new_token

__all__ = ["ListedToken", "TokenNotFound", "add_token", "list_tokens", "revoke_token"]

_MODE: Final = 0o600
_HEAD: Final = """\
# Who may do what: `tailrace serve --access` reads this file, and again at SIGHUP.
# Of tokens it has only hashes. `tailrace token new`, `list` and `revoke` change it.
"""


class TokenNotFound(Exception):
    """There is no token of this id."""


@dataclass(frozen=True, slots=True)
class ListedToken:
    """What people know a token by."""

    id: str
    name: str
    grants: tuple[str, ...]
    created: datetime | None
    expires: datetime | None


def add_token(
    path: Path, name: str, grants: Sequence[str], expires: datetime | None = None
) -> tuple[str, str]:
    """
    Make a token, and the file if there is none. Returns its id and its text, which is kept nowhere.

    Raises:
        GrantInvalid: A grant is none.
        AccessFileInvalid: The file has a mistake in it.
        OSError: It cannot be written.
    """
    for grant in grants:
        parse_grant(grant)
    with _locked(path) as target:
        before = _read(target)
        known = {token.id for token in parse_access_file(before, path, keys=False).tokens}
        id_, text = new_token()
        while id_ in known:
            id_, text = new_token()
        table: dict[str, Any] = {"id": id_, "name": name, "hash": hash_of(text)}
        table["grants"] = list(grants)
        table["created"] = datetime.now(UTC).replace(microsecond=0)
        if expires is not None:
            table["expires"] = expires
        # At the end a table is always in place, whatever stands before it.
        gap = "" if not before or before.endswith("\n\n") else "\n" * (2 - before.endswith("\n"))
        _write(target, before + gap + tomlkit.dumps({"token": [table]}), path)
    return id_, text


def revoke_token(path: Path, id_: str) -> str:
    """
    Take a token out; returns its name.

    Raises:
        TokenNotFound: There is none of this id.
        AccessFileInvalid: The file is not there, or has a mistake in it.
        OSError: It cannot be written.
    """
    with _locked(path) as target:
        before = _existing(target, path)
        ids = [token.id for token in parse_access_file(before, path, keys=False).tokens]
        if id_ not in ids:
            raise TokenNotFound(id_)
        document = tomlkit.parse(before)
        tables: Any = document["token"]
        name = str(tables[ids.index(id_)].get("name", ""))
        del tables[ids.index(id_)]
        if not tables:
            del document["token"]
        _write(target, tomlkit.dumps(document), path)
    return name


def list_tokens(path: Path) -> list[ListedToken]:
    """
    All tokens of a file, in its order.

    Raises:
        AccessFileInvalid: The file is not there, or has a mistake in it.
    """
    text = _existing(path, path)
    parse_access_file(text, path, keys=False)
    return [
        ListedToken(
            table["id"],
            table.get("name", ""),
            tuple(table["grants"]),
            table.get("created"),
            table.get("expires"),
        )
        for table in tomllib.loads(text).get("token", [])
    ]


@contextmanager
def _locked(path: Path) -> Iterator[Path]:
    """Nobody else changes the file meanwhile; yields where it really is."""
    # A link stays one: what it leads to is replaced.
    target = path.resolve()
    folder = os.open(target.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(folder, fcntl.LOCK_EX)
        yield target
        # The new name is on disk, too.
        os.fsync(folder)
    finally:
        os.close(folder)


def _read(target: Path) -> str:
    try:
        return target.read_text("utf-8")
    except FileNotFoundError:
        return _HEAD
    except UnicodeDecodeError as error:
        raise AccessFileInvalid(f"{target}: cannot be read: {error}") from None


def _existing(target: Path, path: Path) -> str:
    if not target.exists():
        raise AccessFileInvalid(f"{path}: no such file; tailrace token new makes one")
    return _read(target)


def _write(target: Path, text: str, path: Path) -> None:
    try:
        parse_access_file(text, path, keys=False)
    except (AccessFileInvalid, TOMLKitError) as error:
        raise AccessFileInvalid(
            f"{path}: cannot be changed here, edit it by hand: {error}"
        ) from None
    descriptor, name = tempfile.mkstemp(prefix=f".{target.name}.", dir=target.parent)
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            _as_before(file.fileno(), target)
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        Path(name).replace(target)
    except BaseException:
        with suppress(OSError):
            Path(name).unlink()
        raise


def _as_before(descriptor: int, target: Path) -> None:
    """The mode and, as far as we may, the owner of what is replaced."""
    try:
        old = target.stat()
    except FileNotFoundError:
        os.fchmod(descriptor, _MODE)
        return
    os.fchmod(descriptor, stat.S_IMODE(old.st_mode))
    with suppress(PermissionError):
        # Made by root, it must still be readable for the server.
        os.fchown(descriptor, old.st_uid, old.st_gid)
