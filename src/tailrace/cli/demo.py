"""`tailrace demo`: what it is for, in ten seconds."""

import json
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO, Final

import click

from tailrace.cli.failures import Failure
from tailrace.cli.output import Output, on_terminal
from tailrace.cli.parameters import PAUSE
from tailrace.cli.serve import check_libraries
from tailrace.cli.signals import ending_on_signals
from tailrace.cli.stdio import columns, tell
from tailrace.client import Client, Stream, TailraceError

__all__ = ["ANSWER", "demo"]

ANSWER: Final = (
    "A tailrace is the channel that leads the water away from a mill. The wheel turns, the water "
    "has done its work, and it flows on for whoever is downstream. This answer flows in the same "
    "way: word by word into a stream on disk, and from there to every reader. If one of them goes "
    "away, its words are kept. It comes back, says where it was, and misses none."
)

_PATH: Final = "demo/answer"
_WIDTH_MAX: Final = 78
_STOP_S: Final = 15.0
_SERVER: Final = ("--host", "127.0.0.1", "--port", "0", "--log-format", "json")

_NEXT: Final = """\
Try it yourself:

  tailrace serve                               # keeps its data in ./data
  tailrace append chat --create --json '"hi"'  # in another terminal, again and again
  tailrace tail -f chat                        # and in a third one"""


@click.command()
@click.option(
    "--pause",
    type=PAUSE,
    default=0.07,
    show_default=True,
    metavar="SECONDS",
    help="Between two words.",
)
def demo(pause: float) -> None:
    """
    Show what it is for, in ten seconds.

    Starts a server on a free port and a temporary directory, writes an answer word by word, follows
    it, kills the reader halfway and goes on without a gap. Nothing is left behind.
    """
    check_libraries()
    words = [word + " " for word in ANSWER.split()]
    with ending_on_signals(), ExitStack() as stack:
        directory = stack.enter_context(tempfile.TemporaryDirectory(prefix="tailrace-demo-"))
        url = stack.enter_context(_server(Path(directory)))
        stream = stack.enter_context(Client(url)).stream(_PATH)
        stream.create("application/json")
        _say(f"A server runs at {url}, on a temporary directory.")
        _say("One process writes an answer to a stream, another one follows it:\n")
        writer = stack.enter_context(_writing(stream, words, pause))
        shown = _follow_twice(url, len(words))
        writer.join()
    if shown != words:
        raise Failure(f"of {len(words)} words {len(shown)} were read, not all or not in order")
    _say(f"\n{len(words)} words were written and read: none is missing, none came twice.\n")
    _say(_NEXT)


def _say(text: str, end: str = "\n") -> None:
    output = Output()
    output.write((text + end).encode())
    output.flush()


def _follow_twice(url: str, count: int) -> list[str]:
    """Follow with a reader that is killed halfway, then with another; the words that were shown."""
    page = _Page()
    offset = "-1"
    for until in (count // 2, count):
        with _reader(url, offset) as lines:
            for line in lines:
                item = json.loads(line)
                offset = item["next_offset"]
                page.show(item["value"]["word"])
                if len(page.words) == until:
                    break
        page.end()
        if until < count:
            _say(f"\n-- the reader was killed at offset {offset}; the writer goes on")
            _say("-- a new reader begins there: first what it missed, then live\n")
    return page.words


class _Page:
    """Words in lines, as they come."""

    def __init__(self) -> None:
        self.words: list[str] = []
        self._column = 0
        self._width = min(columns(sys.stdout), _WIDTH_MAX) if on_terminal() else _WIDTH_MAX

    def show(self, word: str) -> None:
        # The space after it may fall off the edge.
        if self._column and self._column + len(word) - 1 > self._width:
            self.end()
        _say(word if self._column else f"  {word}", end="")
        self.words.append(word)
        self._column += len(word) + (0 if self._column else 2)

    def end(self) -> None:
        _say("")
        self._column = 0


@contextmanager
def _writing(stream: Stream, words: list[str], pause_s: float) -> Iterator[threading.Thread]:
    """Write in the background, word by word."""
    stop = threading.Event()

    def write() -> None:
        try:
            with stream.producer() as producer:
                for word in words:
                    if stop.wait(pause_s):
                        return
                    producer.append_json({"word": word})
                producer.close_stream()
        except TailraceError as error:
            tell(f"tailrace: the writer failed: {error}")

    thread = threading.Thread(target=write, name="demo-writer")
    thread.start()
    try:
        yield thread
    finally:
        stop.set()
        thread.join()


@contextmanager
def _reader(url: str, offset: str) -> Iterator[IO[str]]:
    """A process of its own that follows the stream; killed at the end, and not asked to stop."""
    command = ["tail", _PATH, "--follow", "--json", "--offset", offset, "--url", url]
    with _child(command, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        try:
            yield process.stdout
        finally:
            process.kill()


@contextmanager
def _server(directory: Path) -> Iterator[str]:
    """A server in a process of its own; its URL."""
    command = ["serve", *_SERVER, "--data-dir", str(directory / "data")]
    log = directory / "log"
    with log.open("w") as file, _child(command, stderr=file) as process:
        try:
            yield _wait_for_url(process, log)
        finally:
            process.terminate()
            try:
                process.wait(_STOP_S)
            except subprocess.TimeoutExpired:
                process.kill()


def _wait_for_url(process: "subprocess.Popen[str]", log: Path) -> str:
    while True:
        ended = process.poll() is not None
        for line in log.read_text().splitlines(keepends=True):
            if line.endswith("\n") and (event := json.loads(line))["event"] == "listening":
                return str(event["url"])
        if ended:
            raise Failure(f"the server did not start: {log.read_text()}")
        threading.Event().wait(0.02)


@contextmanager
def _child(
    command: list[str], stdout: int = subprocess.DEVNULL, stderr: IO[str] | None = None
) -> Iterator["subprocess.Popen[str]"]:
    """
    A command of ours in another process.

    In a session of its own: Ctrl-C is for us alone, who end it in our way. The user's settings are
    for the user's server.
    """
    environment = {key: text for key, text in os.environ.items() if "TAILRACE_" not in key}
    with subprocess.Popen(
        [sys.executable, "-m", "tailrace", *command],
        stdin=subprocess.DEVNULL,
        stdout=stdout,
        stderr=stderr,
        text=True,
        env=environment,
        start_new_session=True,
    ) as process:
        try:
            yield process
        except BaseException:
            if process.poll() is None:
                process.terminate()
            raise
