"""`tailrace rm`."""

import sys

import click

from tailrace.cli.connection import Location, Server, bucket_option, make_location, server_options
from tailrace.cli.failures import Failure, one_line, print_error
from tailrace.cli.output import report
from tailrace.cli.parameters import TEXT
from tailrace.cli.stdio import print_stderr
from tailrace.exceptions import ExitCode

__all__ = ["confirm", "rm", "yes_option"]

yes_option = click.option("-y", "--yes", is_flag=True, help="Do not ask for confirmation.")


def confirm(question: str, yes: bool) -> None:
    """Ask before data is removed, if standard input is a terminal; no is a `Failure`."""
    if yes or not sys.stdin.isatty():
        return
    try:
        agreed = click.confirm(one_line(question), err=True)
    except click.Abort:
        # The shell's prompt begins a new line.
        print_stderr("")
        raise
    except OSError:
        agreed = False
    if not agreed:
        raise Failure("nothing was removed")


@click.command()
@click.argument("paths", metavar="PATH...", nargs=-1, required=True, type=TEXT)
@bucket_option
@server_options
@yes_option
def rm(paths: tuple[str, ...], bucket: str, server: Server, yes: bool) -> None:
    """
    Delete streams and their data.

    Asks for confirmation on a terminal. If a stream cannot be deleted, the others still are.
    """
    locations = [make_location(server, path, bucket) for path in paths]
    confirm(f"Delete {_names(locations)} permanently?", yes)
    code = ExitCode.DONE
    for index, location in enumerate(locations):
        try:
            with location.stream(missing="") as stream:
                stream.delete()
        except Failure as failure:
            if failure.code == ExitCode.UNREACHABLE:
                if locations[index + 1 :]:
                    failure.message += f"; not deleted: {_names(locations[index:])}"
                raise
            print_error(failure.message, failure.hint)
            code = code or failure.code
        else:
            report(f"{location.name}: deleted")
    raise click.exceptions.Exit(code)


def _names(locations: list[Location]) -> str:
    return ", ".join(location.name for location in locations)
