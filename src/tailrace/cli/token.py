"""`tailrace token`: who may do what with a server, in the file of `tailrace serve --access`."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, date, datetime, time, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from tailrace.cli.failures import Failure
from tailrace.cli.output import Output, report, table
from tailrace.cli.parameters import TEXT
from tailrace.cli.stdio import print_stderr as tell
from tailrace.exceptions import ExitCode

if TYPE_CHECKING:
    from tailrace.server.access.edit import ListedToken

    _ParamType = click.ParamType[Any]
else:
    # Not generic in every release of click.
    _ParamType = click.ParamType

__all__ = ["token"]

_TITLES: Final = ("ID", "NAME", "GRANTS", "CREATED", "EXPIRES")
_SPAN: Final = re.compile(r"([0-9]{1,6})([mhdw])", re.ASCII)
_UNITS: Final = {"m": "minutes", "h": "hours", "d": "days", "w": "weeks"}


class _Moment(_ParamType):
    """A time to come: so long from now, or a date."""

    name = "time"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        try:
            moment = _moment(str(value))
        except (ValueError, OverflowError):
            self.fail(f"{value!r} is neither like 30d, 12h or 4w nor a date.", param, ctx)
        if moment <= datetime.now(UTC):
            self.fail(f"{value!r} is over.", param, ctx)
        return moment


def _moment(text: str) -> datetime:
    if span := _SPAN.fullmatch(text):
        length = timedelta(**{_UNITS[span[2]]: int(span[1])})
        return (datetime.now(UTC) + length).replace(microsecond=0)
    moment = datetime.fromisoformat(text)
    return moment.astimezone(UTC) if moment.tzinfo else moment.replace(tzinfo=UTC)


_file_option = click.option(
    "--file",
    required=True,
    envvar="TAILRACE_ACCESS",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="The access file; TAILRACE_ACCESS says the same.",
)


@contextmanager
def _failures() -> Iterator[None]:
    """What can be wrong with an access file, and with this installation."""
    try:
        from tailrace.server.access import AccessFileInvalid
        from tailrace.server.access.grants import GrantInvalid
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
        raise Failure(str(error), ExitCode.USAGE, "tailrace token new --help") from error


@click.group()
def token() -> None:
    """
    Make, list and revoke tokens for a server.

    They are kept, as hashes, in the file that `tailrace serve --access FILE` reads when it starts
    and at SIGHUP.
    """


@token.command()
@_file_option
@click.option("--name", required=True, type=TEXT, help="Who gets it; for people.")
@click.option(
    "--grant",
    "grants",
    multiple=True,
    required=True,
    type=TEXT,
    metavar="OPERATIONS:PLACE",
    help="What it may do where, as read,append:/chat-rooms; may be given several times. "
    "Operations: read, append, create, delete, snapshot, admin, or * for all.",
)
@click.option(
    "--expires",
    type=_Moment(),
    metavar="WHEN",
    help="When it ends: 12h, 30d, 4w, or a date such as 2030-01-31. Never, by default.",
)
def new(file: Path, name: str, grants: tuple[str, ...], expires: datetime | None) -> None:
    """
    Make a token and print it, once.

    It is kept nowhere. The file is made if it is not there.
    """
    with _failures():
        from tailrace.server.access.edit import add_token

        id_, text = add_token(file, name, grants, expires)
    output = Output()
    output.line(text.encode())
    output.flush()
    tell(f"{id_} is in {file}; the token itself is kept nowhere: put it where it is needed, now.")
    tell(f"A server that runs with --access {file} takes it after: systemctl reload tailrace")
    tell("(or kill -HUP its process). To try it:")
    tell('  curl -H "Authorization: Bearer $TOKEN" http://127.0.0.1:4437/…')


@token.command("list")
@_file_option
@click.option("--json", "is_json", is_flag=True, help="Each as an object on a line.")
def list_(file: Path, is_json: bool) -> None:
    """List the tokens of a file: all but their secrets, which nobody has."""
    with _failures():
        from tailrace.server.access.edit import list_tokens

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
    """Take a token out of a file; live readers that use it are ended when the server reloads."""
    with _failures():
        from tailrace.server.access.edit import TokenNotFound, revoke_token

        try:
            name = revoke_token(file, id)
        except TokenNotFound as error:
            raise Failure(
                f"{file}: no token has the id {id}",
                ExitCode.NOT_FOUND,
                f"tailrace token list --file {file}",
            ) from error
    report(f"{id}: revoked ({name})")
    tell("A running server refuses it after: systemctl reload tailrace (or kill -HUP its process)")


def _fields(item: "ListedToken") -> dict[str, Any]:
    return {
        "id": item.id,
        "name": item.name,
        "grants": list(item.grants),
        "created": _iso(item.created) or None,
        "expires": _iso(item.expires) or None,
        "expired": _is_over(item.expires),
    }


def _row(item: "ListedToken") -> tuple[str, ...]:
    ends = "expired" if _is_over(item.expires) else _day(item.expires) or "never"
    return item.id, item.name, " ".join(item.grants), _day(item.created), ends


def _utc(moment: date | None) -> datetime | None:
    """As the server reads it: what has no offset is UTC, and a date its first moment."""
    if moment is None:
        return None
    if not isinstance(moment, datetime):
        moment = datetime.combine(moment, time())
    return moment.astimezone(UTC) if moment.tzinfo else moment.replace(tzinfo=UTC)


def _iso(moment: date | None) -> str:
    found = _utc(moment)
    return found.isoformat().replace("+00:00", "Z") if found else ""


def _day(moment: date | None) -> str:
    return _iso(moment)[:10]


def _is_over(moment: date | None) -> bool:
    found = _utc(moment)
    return found is not None and found <= datetime.now(UTC)
