"""`tailrace rm`."""

import sys

import click

from tailrace.cli.connection import Server, Target, bucket_option, make_target, server_options
from tailrace.cli.failures import ExitCode, Failure, one_line, show
from tailrace.cli.output import report
from tailrace.cli.parameters import TEXT
from tailrace.cli.stdio import tell

__all__ = ["confirm", "rm"]


def confirm(question: str, yes: bool) -> None:
    """
    Ask before something is gone for good; like rm, only if there is somebody to ask.

    Raises:
        Failure: The answer is no.
    """
    if yes or not sys.stdin.isatty():
        return
    try:
        agreed = click.confirm(one_line(question), err=True)
    except click.Abort:
        # The shell's prompt goes on a line of its own.
        tell("")
        raise
    except OSError:
        agreed = False
    if not agreed:
        raise Failure("nothing was removed")


@click.command()
@click.argument("paths", metavar="PATH...", nargs=-1, required=True, type=TEXT)
@bucket_option
@server_options
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
def rm(paths: tuple[str, ...], bucket: str, server: Server, yes: bool) -> None:
    """
    Delete streams with all their data.

    On a terminal it asks first. If one cannot be deleted, the others still are.
    """
    targets = [make_target(server, path, bucket) for path in paths]
    names = ", ".join(target.name for target in targets)
    confirm(f"Delete {names} for good?", yes)
    code = ExitCode.DONE
    for at, target in enumerate(targets):
        try:
            with target.stream(missing="") as stream:
                stream.delete()
        except Failure as failure:
            if failure.code == ExitCode.UNREACHABLE:
                failure.message += _remaining(targets[at:])
                raise
            show(failure.message, failure.hint)
            code = code or failure.code
        else:
            report(f"{target.name}: deleted")
    raise click.exceptions.Exit(code)


def _remaining(targets: list[Target]) -> str:
    return f"; not deleted: {', '.join(target.name for target in targets)}" if targets[1:] else ""
