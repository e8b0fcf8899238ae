"""`tailrace token`: the tokens in the file of `tailrace serve --access`."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from tailrace.cli.failures import Failure
from tailrace.cli.output import Output, report, table
from tailrace.cli.parameters import TEXT
from tailrace.cli.stdio import print_stderr as tell

if TYPE_CHECKING:
    from tailrace.server.guard.access.tokens import Token

    _ParamType = click.ParamType[Any]
else:
    # Not generic in every release of click.
    _ParamType = click.ParamType

__all__ = ["token"]

_TITLES: Final = ("ID", "NAME", "GRANTS", "CREATED", "EXPIRES")
_DURATION: Final = re.compile(r"([0-9]{1,6})([mhdw])", re.ASCII)
_UNITS: Final = {"m": "minutes", "h": "hours", "d": "days", "w": "weeks"}


class _ExpiryType(_ParamType):
    """A time in the future: a duration from now, or a date."""

    name = "time"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        try:
            expires = _parse_expiry(str(value))
        except (ValueError, OverflowError):
            self.fail(
                f"{value!r} is neither a duration such as 30d, 12h or 4w, nor a date.", param, ctx
            )
        if expires <= datetime.now(UTC):
            self.fail(f"{value!r} is in the past.", param, ctx)
        return expires


def _parse_expiry(text: str) -> datetime:
    if duration := _DURATION.fullmatch(text):
        length = timedelta(**{_UNITS[duration[2]]: int(duration[1])})
        return (datetime.now(UTC) + length).replace(microsecond=0)
    expires = datetime.fromisoformat(text)
    return expires.astimezone(UTC) if expires.tzinfo else expires.replace(tzinfo=UTC)


_file_option = click.option(
    "--file",
    required=True,
    envvar="TAILRACE_ACCESS",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="The access file [TAILRACE_ACCESS].",
)


@contextmanager
def _failures() -> Iterator[None]:
    """Convert errors of the access file, and of an incomplete installation."""
    try:
        from tailrace.server.guard.access import AccessFileInvalid
        from tailrace.server.guard.access.grants import GrantInvalid
    except ModuleNotFoundError as error:
        if error.name is not None and error.name.startswith("tailrace"):
            raise
        raise Failure(
            "tokens need the server's libraries: pip install 'tailrace[server]'"
        ) from error
    try:
        yield
    except AccessFileInvalid as error:
        raise Failure(str(error)) from error
    except GrantInvalid as error:
        raise Failure(str(error), error.exit_code, error.hint) from error


@click.group()
def token() -> None:
    """
    Make, list and revoke tokens for a server.

    Their hashes are in the file of `tailrace serve --access FILE`, which the server reads at start
    and at SIGHUP.
    """


@token.command()
@_file_option
@click.option("--name", required=True, type=TEXT, help="A note: who uses the token.")
@click.option(
    "--grant",
    "grants",
    multiple=True,
    required=True,
    type=TEXT,
    metavar="OPERATIONS:LOCATION",
    help="A grant, such as read,append:/chat-rooms; may be repeated. "
    "Operations: read, append, create, delete, snapshot, admin, or * for all.",
)
@click.option(
    "--expires",
    type=_ExpiryType(),
    metavar="WHEN",
    help="Expiry: 12h, 30d, 4w, or a date such as 2030-01-31. Default: never.",
)
def new(file: Path, name: str, grants: tuple[str, ...], expires: datetime | None) -> None:
    """
    Make a token and print it.

    It is printed only once: the file holds its hash. A missing file is created.
    """
    with _failures():
        from tailrace.server.guard.access.token_editor import add_token

        id_, text = add_token(file, name, grants, expires)
    output = Output()
    output.line(text.encode())
    output.flush()
    tell(f"{id_} was added to {file}. The token is not stored: copy it now.")
    tell(f"A running server with --access {file} accepts it after: systemctl reload tailrace")
    tell("(or kill -HUP its process). To try it:")
    tell('  curl -H "Authorization: Bearer $TOKEN" http://127.0.0.1:4437/…')


@token.command("list")
@_file_option
@click.option("--json", "is_json", is_flag=True, help="Print one JSON object per line.")
def list_(file: Path, is_json: bool) -> None:
    """List the tokens of a file, without their secrets, which are not stored."""
    with _failures():
        from tailrace.server.guard.access.token_editor import list_tokens

        found = list_tokens(file)
    output = Output()
    if is_json:
        for item in found:
            output.json(_fields(item))
    elif found:
        for line in table([_TITLES, *map(_row, found)], [0] * len(_TITLES)):
            output.line(line.encode())
    else:
        report(f"{file}: no tokens")
    output.flush()


@token.command()
@click.argument("id", type=TEXT)
@_file_option
def revoke(id: str, file: Path) -> None:
    """Remove a token from a file; a reload of the server ends its live readers."""
    with _failures():
        from tailrace.server.guard.access.token_editor import TokenNotFound, revoke_token

        try:
            name = revoke_token(file, id)
        except TokenNotFound as error:
            raise Failure(
                f"{file}: {error}", error.exit_code, f"tailrace token list --file {file}"
            ) from error
    report(f"{id}: revoked ({name})")
    tell("A running server rejects it after: systemctl reload tailrace (or kill -HUP its process)")


def _fields(item: "Token") -> dict[str, Any]:
    return {
        "id": item.id,
        "name": item.name,
        "grants": list(item.grants),
        "created": _iso(item.created) or None,
        "expires": _iso(item.expires) or None,
        "expired": _is_expired(item),
    }


def _row(item: "Token") -> tuple[str, ...]:
    expires = "expired" if _is_expired(item) else _iso(item.expires)[:10] or "never"
    return item.id, item.name, " ".join(item.grants), _iso(item.created)[:10], expires


def _iso(time: datetime | None) -> str:
    return time.isoformat().replace("+00:00", "Z") if time else ""


def _is_expired(item: "Token") -> bool:
    return item.expires is not None and item.expires <= datetime.now(UTC)
