"""`tailrace backup`: everything that a server stores, at one moment."""

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import click

from tailrace.cli.connection import Location, Server, server_options
from tailrace.cli.error_messages import failure_for
from tailrace.cli.failures import Failure
from tailrace.cli.files import STANDARD, destination, file_argument
from tailrace.cli.output import Output, human_bytes, on_terminal, report
from tailrace.cli.progress import Progress, progress_option, show_progress
from tailrace.client import Retry, TailraceError
from tailrace.client.errors import AnswerInvalid, Unreachable
from tailrace.client.flow import Give, Items, Piece, expect
from tailrace.client.requests import Options, Resource, server_url
from tailrace.client.sync.driver import Driver
from tailrace.exceptions import ExitCode

__all__ = ["backup"]

_PIECE_BYTES: Final = 256 << 10
_TAR: Final = "application/x-tar"


class _BackupFlows(Resource):
    """Requests for a backup."""

    def pieces(self) -> Items[int | bytes]:
        """The size of the backup, and then its bytes as they arrive."""
        response = yield from expect(self._request("POST"), 200)
        length = response.headers.get("content-length", "")
        if response.headers.get("content-type") != _TAR or not length.isdecimal():
            raise AnswerInvalid(self.url, "the response is not a backup")
        yield Give((int(length),))
        left = int(length)
        while left and (piece := (yield Piece(_PIECE_BYTES))):
            left -= len(piece)
            yield Give((piece,))
        if left:
            raise Unreachable(self.url, "the response ended early")


@click.command()
@file_argument
@server_options
@progress_option
def backup(file: Path, server: Server, progress: bool | None) -> None:
    """
    Write a backup of a running server to a file.

    FILE may be -, for standard output. The backup is a tar archive of the server's state at one
    moment. FILE appears when it is complete. Restore it with tailrace restore.
    """
    if file == STANDARD and on_terminal():
        raise Failure("a backup is binary: write it to a file, or pipe it", ExitCode.USAGE)
    # Retries cover the request only. A transfer that fails is for the user to repeat.
    retry = Retry(attempts_max=1 if server.retries is None else server.retries + 1)
    options = Options(server.headers, {}, retry)
    url = server_url(server.url)
    driver = Driver(server.timeout_s)
    pieces = driver.iterate(_BackupFlows(f"{url}/-/backup", options).pieces())
    try:
        size = _copy(pieces, file, progress)
    except TailraceError as error:
        raise failure_for(error, Location(server), missing="") from error
    finally:
        driver.close()
    if file != STANDARD:
        report(f"{url}: {human_bytes(size)} in {file}")


def _copy(pieces: Iterator[int | bytes], file: Path, progress: bool | None) -> int:
    # Before the file is opened: most errors occur here.
    total = next(pieces)
    assert isinstance(total, int)
    with (
        destination(file, lambda: Output(_TAR, force=True)) as write,
        show_progress(Progress("backup", total), progress) as shown,
    ):
        for piece in pieces:
            assert isinstance(piece, bytes)
            write(piece)
            shown.advance(len(piece))
    return total
