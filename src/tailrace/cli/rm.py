"""`tailrace rm`."""

import sys

import click

from tailrace.cli.connection import Server, bucket_option, make_target, server_options
from tailrace.cli.failures import Failure, one_line
from tailrace.cli.output import report

__all__ = ["confirm", "rm"]


def confirm(question: str, yes: bool) -> None:
    """
    Ask before something is gone for good; like rm, only if there is somebody to ask.

    Raises:
        Failure: The answer is no.
    """
    asks = not yes and sys.stdin.isatty()
    if asks and not click.confirm(one_line(question), err=True):
        raise Failure("nothing was removed")


@click.command()
@click.argument("paths", metavar="PATH...", nargs=-1, required=True)
@bucket_option
@server_options
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
def rm(paths: tuple[str, ...], bucket: str, server: Server, yes: bool) -> None:
    """
    Delete streams with all their data.

    On a terminal it asks first.
    """
    targets = [make_target(server, path, bucket) for path in paths]
    names = ", ".join(target.name for target in targets)
    confirm(f"Delete {names} for good?", yes)
    for target in targets:
        with target.stream() as stream:
            stream.delete()
        report(f"{target.name}: deleted")
