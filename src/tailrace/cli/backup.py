"""`tailrace backup`: all that a server has, as it is at one moment."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import click

from tailrace.cli.connection import Server, server_options
from tailrace.cli.error_messages import Subject, explain
from tailrace.cli.failures import ExitCode, Failure
from tailrace.cli.files import STANDARD, written
from tailrace.cli.output import Output, human_bytes, on_terminal, report
from tailrace.cli.progress import Progress, progress_option, shown
from tailrace.client import Retry, TailraceError
from tailrace.client.connections import Connections
from tailrace.client.errors import AnswerInvalid, Unreachable
from tailrace.client.flow import Flow, Give, Piece, expect
from tailrace.client.items import Items
from tailrace.client.requests import Options, make_call, server_url
from tailrace.client.sync_shell import Handle, Shell, iterates

__all__ = ["backup"]

_PIECE_BYTES: Final = 256 << 10
_TAR: Final = "application/x-tar"


class _BackupFlows:
    """Backups of a server at its URL."""

    def __init__(self, url: str, options: Options) -> None:
        self.url = f"{url}/-/backup"
        self._options = options

    def pieces(self) -> Items[int | bytes]:
        """How large it is, and then the backup itself as it comes."""
        return Items(self._pieces())

    def _pieces(self) -> Flow[None]:
        call = yield from make_call(self._options, "POST", self.url)
        answer = yield from expect(call, self._options.retry, 200)
        length = answer.headers.get("content-length", "")
        if answer.headers.get("content-type") != _TAR or not length.isdecimal():
            raise AnswerInvalid(self.url, "this is no backup")
        yield Give((int(length),))
        left = int(length)
        while left and (piece := (yield Piece(_PIECE_BYTES))):
            left -= len(piece)
            yield Give((piece,))
        if left:
            raise Unreachable(self.url, "the answer broke off")


class _Backup(Handle[_BackupFlows]):
    pieces = iterates(_BackupFlows.pieces)


@click.command()
@click.argument("file", type=click.Path(path_type=Path, allow_dash=True))
@server_options
@progress_option
def backup(file: Path, server: Server, progress: bool | None) -> None:
    """
    Write all that a server has to a file, as it is at one moment.

    FILE may be -, for standard output. It is a tar, and appears when all of it is there; the server
    goes on meanwhile. tailrace restore makes a data directory of it.
    """
    if file == STANDARD and on_terminal():
        raise Failure("a backup is binary: write it to a file, or pipe it", ExitCode.USAGE)
    # A second attempt at the beginning is harmless; one that broke off is for its user to judge.
    retry = Retry(attempts_max=1 if server.retries is None else server.retries + 1)
    options = Options(server.headers, {}, retry)
    url = server_url(server.url)
    connections = Connections(server.timeout_s)
    source = _Backup(Shell(connections), _BackupFlows(url, options), options)
    try:
        size = _copy(source.pieces(), file, progress)
    except TailraceError as error:
        raise explain(error, Subject(url, "", "", server.words(), "")) from error
    finally:
        connections.close()
    if file != STANDARD:
        report(f"{url}: {human_bytes(size)} in {file}")


def _copy(pieces: Iterator[int | bytes], file: Path, progress: bool | None) -> int:
    # Before there is a file: most of what can go wrong, does so here.
    total = next(pieces)
    assert isinstance(total, int)
    with _destination(file) as write, shown("backup", total, progress) as told:
        for piece in pieces:
            assert isinstance(piece, bytes)
            write(piece)
            _count(told, piece)
    return total


def _count(told: Progress, piece: bytes) -> None:
    told.advance(len(piece), 0)


@contextmanager
def _destination(file: Path) -> Iterator[Callable[[bytes], object]]:
    if file == STANDARD:
        output = Output("application/x-tar", force=True)
        yield output.write
        output.finish()
    else:
        with written(file) as writer:
            yield writer.write
