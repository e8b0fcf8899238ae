"""
Changes to the access file by `tailrace token`.

Rule 1: users edit the file, too. Comments, order and text between tokens are preserved.

Rule 2: the file is replaced atomically: a server that reloads at the same time reads the old or the
new one. Owner and mode are preserved; a new file is accessible to its owner only.

Rule 3: one change at a time. The lock is on the directory, since the file itself is replaced.
"""

import fcntl
import os
import stat
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import tomlkit
from tomlkit.exceptions import TOMLKitError

from tailrace.exceptions import ExitCode, TailraceError
from tailrace.server.guard.access.access_file import (
    AccessFileInvalid,
    parse_access_file,
    read_access_file,
)
from tailrace.server.guard.access.grants import parse_grants
from tailrace.server.guard.access.tokens import Token, hash_of, new_token

__all__ = ["TokenNotFound", "add_token", "list_tokens", "revoke_token"]

_HEADER: Final = """\
# Access control of `tailrace serve --access`, which reads this file at start and at SIGHUP.
# It holds hashes of tokens only. `tailrace token new`, `list` and `revoke` change it.
"""


class TokenNotFound(TailraceError):
    """No token of the file has this id."""

    message = "no token has the id {id}"
    exit_code = ExitCode.NOT_FOUND
    id: str


def add_token(
    path: Path, name: str, grants: Sequence[str], expires: datetime | None = None
) -> tuple[str, str]:
    """
    Add a new token; creates the file if it is missing.

    Returns the token's id and its text, which is not stored.

    Raises:
        GrantInvalid: A grant is invalid.
        AccessFileInvalid: The file is invalid.
        OSError: The file cannot be written.
    """
    parse_grants(grants)
    with _locked(path) as target:
        before = read_access_file(path) if path.exists() else _HEADER
        taken = {token.id for token in parse_access_file(before, path).token}
        id_, text = new_token()
        while id_ in taken:
            id_, text = new_token()
        table: dict[str, Any] = {"id": id_, "name": name, "hash": hash_of(text)}
        table["grants"] = list(grants)
        table["created"] = datetime.now(UTC).replace(microsecond=0)
        if expires is not None:
            table["expires"] = expires
        # A table at the end of a file is valid after any other content.
        gap = "" if not before or before.endswith("\n\n") else "\n" * (2 - before.endswith("\n"))
        _write(target, before + gap + tomlkit.dumps({"token": [table]}), path)
    return id_, text


def revoke_token(path: Path, id_: str) -> str:
    """
    Remove a token; returns its name.

    Raises:
        TokenNotFound: No token has this id.
        AccessFileInvalid: The file is missing or invalid.
        OSError: The file cannot be written.
    """
    with _locked(path) as target:
        before = read_access_file(path)
        tokens = parse_access_file(before, path).token
        index = next((at for at, token in enumerate(tokens) if token.id == id_), None)
        if index is None:
            raise TokenNotFound(id_)
        document = tomlkit.parse(before)
        tables: Any = document["token"]
        del tables[index]
        if not tables:
            del document["token"]
        _write(target, tomlkit.dumps(document), path)
    return tokens[index].name


def list_tokens(path: Path) -> tuple[Token, ...]:
    """
    All tokens of a file, in its order.

    Raises:
        AccessFileInvalid: The file is missing or invalid.
    """
    return parse_access_file(read_access_file(path), path).token


@contextmanager
def _locked(path: Path) -> Iterator[Path]:
    """Lock the file against other changes; yields its real path."""
    # Of a symbolic link, the target is replaced.
    target = path.resolve()
    directory = os.open(target.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(directory, fcntl.LOCK_EX)
        yield target
        # Make the rename durable.
        os.fsync(directory)
    finally:
        os.close(directory)


def _write(target: Path, text: str, path: Path) -> None:
    try:
        parse_access_file(text, path)
    except (AccessFileInvalid, TOMLKitError) as error:
        raise AccessFileInvalid(
            f"{path}: cannot be changed by this command, edit it by hand: {error}"
        ) from None
    # Accessible to its owner only.
    descriptor, name = tempfile.mkstemp(prefix=f".{target.name}.", dir=target.parent)
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            if target.exists():
                old = target.stat()
                os.fchmod(descriptor, stat.S_IMODE(old.st_mode))
                with suppress(PermissionError):
                    # Written by root, the file must stay readable for the server's user.
                    os.fchown(descriptor, old.st_uid, old.st_gid)
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        Path(name).replace(target)
    except BaseException:
        with suppress(OSError):
            Path(name).unlink()
        raise
