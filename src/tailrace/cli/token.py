"""`tailrace token`: the tokens in the file of `tailrace serve --access`."""

import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click
from click.types import FuncParamType

from tailrace.cli.failures import Failure
from tailrace.cli.output import as_json, print_lines, report, table
from tailrace.cli.parameters import TEXT
from tailrace.cli.stdio import print_stderr
from tailrace.server.settings import SettingsError

if TYPE_CHECKING:
    from tailrace.server.guard.access.tokens import Token

__all__ = ["token"]

_TITLES: Final = ("ID", "NAME", "GRANTS", "CREATED", "EXPIRES")
_DURATION: Final = re.compile(r"([0-9]{1,6})([mhdw])", re.ASCII)
_UNITS: Final = {"m": "minutes", "h": "hours", "d": "days", "w": "weeks"}


def _expiry(value: str) -> datetime:
    """A time in the future: a duration from now, or a date."""
    try:
        expires = _parse_expiry(value)
    except (ValueError, OverflowError):
        raise click.BadParameter(
            f"{value!r} is neither a duration such as 30d, 12h or 4w, nor a date."
        ) from None
    if expires <= datetime.now(UTC):
        raise click.BadParameter(f"{value!r} is in the past.")
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


class _Tokens(click.Group):
    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except SettingsError as error:
            # The access file is a setting of `serve`, but here it is the subject of the command.
            raise Failure(str(error)) from error


@click.group(cls=_Tokens)
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
    "Operations: read, append, create, delete, snapshot, subscribe, admin, or * for all.",
)
@click.option(
    "--expires",
    type=FuncParamType(_expiry),
    metavar="WHEN",
    help="Expiry: 12h, 30d, 4w, or a date such as 2030-01-31. Default: never.",
)
def new(file: Path, name: str, grants: tuple[str, ...], expires: datetime | None) -> None:
    """
    Make a token and print it.

    It is printed only once: the file holds its hash. A missing file is created.
    """
    from tailrace.server.guard.access.token_editor import add_token

    id_, text = add_token(file, name, grants, expires)
    print_lines(text)
    print_stderr(f"{id_} was added to {file}. The token is not stored: copy it now.")
    print_stderr(f"A running server with --access {file} accepts it after:")
    print_stderr("  systemctl reload tailrace  # or kill -HUP its process")
    print_stderr("To try it:")
    print_stderr('  curl -H "Authorization: Bearer $TOKEN" http://127.0.0.1:4437/…')


@token.command("list")
@_file_option
@click.option("--json", "is_json", is_flag=True, help="Print one JSON object per line.")
def list_(file: Path, is_json: bool) -> None:
    """List the tokens of a file, without their secrets, which are not stored."""
    from tailrace.server.guard.access.token_editor import list_tokens

    found = list_tokens(file)
    if is_json:
        print_lines(*(as_json(_fields(item)) for item in found))
    elif found:
        print_lines(*table([_TITLES, *map(_row, found)], [0] * len(_TITLES)))
    else:
        report(f"{file}: no tokens")


@token.command()
@click.argument("id", type=TEXT)
@_file_option
def revoke(id: str, file: Path) -> None:
    """Remove a token from a file; a reload of the server ends its live readers."""
    from tailrace.server.guard.access.token_editor import TokenNotFound, revoke_token

    try:
        name = revoke_token(file, id)
    except TokenNotFound as error:
        hint = f"tailrace token list --file {file}"
        raise Failure(f"{file}: {error}", error.exit_code, hint) from error
    report(f"{id}: revoked ({name})")
    print_stderr("A running server rejects it after:")
    print_stderr("  systemctl reload tailrace  # or kill -HUP its process")


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
