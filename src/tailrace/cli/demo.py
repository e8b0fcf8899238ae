"""`tailrace demo`: a stream that survives the crash of its reader, in ten seconds."""

import json
import os
import shutil
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
from tailrace.cli.signals import exit_on_signals
from tailrace.cli.stdio import print_stderr
from tailrace.client import Client, Stream, TailraceError

__all__ = ["TEXT", "demo"]

TEXT: Final = (
    "A tailrace is the channel that leads the water away from a mill. The wheel turns, the water "
    "has done its work, and it flows on downstream. This text flows in the same way: word by word "
    "into a stream on disk, and from there to every reader. If a reader stops, its words are kept. "
    "It comes back, says where it was, and misses none."
)

_PATH: Final = "demo/text"
_WIDTH_MAX: Final = 78
_STOP_S: Final = 15.0
_SERVER: Final = ("--host", "127.0.0.1", "--port", "0", "--log-format", "json")

_NEXT: Final = """\
Try it yourself:

  tailrace serve                               # keeps its data in ./data
  tailrace append chat --create --json '"hi"'  # in another terminal, several times
  tailrace tail -f chat                        # and in a third one"""


@click.command()
@click.option(
    "--pause",
    type=PAUSE,
    default=0.07,
    show_default=True,
    metavar="SECONDS",
    help="Pause between two words.",
)
def demo(pause: float) -> None:
    """
    Show a stream that survives the crash of its reader.

    Starts a server on a free port and a temporary directory, appends a text word by word, follows
    it, kills the reader halfway and continues without a gap. Removes everything at the end.
    """
    # Here, so that a missing library is reported by this process.
    import tailrace.server.lifecycle  # noqa: F401

    words = [word + " " for word in TEXT.split()]
    with exit_on_signals(), ExitStack() as stack:
        directory = stack.enter_context(tempfile.TemporaryDirectory(prefix="tailrace-demo-"))
        url = stack.enter_context(_server(Path(directory)))
        stream = stack.enter_context(Client(url)).stream(_PATH)
        stream.create("application/json")
        _print(f"A server runs at {url}, on a temporary directory.")
        _print("One process writes a text to a stream, and another one follows it:\n")
        writer = stack.enter_context(_writing(stream, words, pause))
        read = _follow_twice(url, len(words))
        writer.join()
    if read != words:
        raise Failure(f"{len(words)} words were written, and other words were read: {read}")
    _print(f"\n{len(words)} words were written and read: none is missing, none came twice.\n")
    _print(_NEXT)


def _print(text: str, end: str = "\n") -> None:
    output = Output()
    output.write((text + end).encode())
    output.flush()


def _follow_twice(url: str, count: int) -> list[str]:
    """Read with a process that is killed halfway, and then with another; returns the words."""
    width = min(shutil.get_terminal_size().columns, _WIDTH_MAX) if on_terminal() else _WIDTH_MAX
    words: list[str] = []
    offset = "-1"
    for until in (count // 2, count):
        column = 0
        with _reader(url, offset) as lines:
            for line in lines:
                item = json.loads(line)
                offset = item["next_offset"]
                words.append(item["value"]["word"])
                # The space after the word does not need to fit.
                if column and column + len(words[-1]) - 1 > width:
                    _print("")
                    column = 0
                text = words[-1] if column else f"  {words[-1]}"
                _print(text, end="")
                column += len(text)
                if len(words) == until:
                    break
        _print("")
        if until < count:
            _print(f"\n-- the reader was killed at offset {offset}; the writer continues")
            _print("-- a new reader starts there: it reads what was missed, and then live\n")
    return words


@contextmanager
def _writing(stream: Stream, words: list[str], pause_s: float) -> Iterator[threading.Thread]:
    """Append word by word, in the background."""
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
            print_stderr(f"tailrace: the writer failed: {error}")

    thread = threading.Thread(target=write, name="demo-writer")
    thread.start()
    try:
        yield thread
    finally:
        stop.set()
        thread.join()


@contextmanager
def _reader(url: str, offset: str) -> Iterator[IO[str]]:
    """The output of a process that follows the stream, and that is killed at the end."""
    command = ["tail", _PATH, "--follow", "--json", "--offset", offset, "--url", url]
    with _child(command, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        try:
            yield process.stdout
        finally:
            process.kill()


@contextmanager
def _server(directory: Path) -> Iterator[str]:
    """The URL of a server in another process."""
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
    A `tailrace` command in another process.

    It has its own session, so that Ctrl-C reaches only the demo, which ends its children itself. It
    does not get the user's settings, which are for another server.
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
