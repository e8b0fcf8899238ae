"""
Which HTTP library should the client use?

    python -m benchmarks.libraries [--smoke]

Each library reads 1 KiB per request, 1 request at a time and 64 at once, and then one SSE stream
of about 25 MB, from our server in memory. Measured are requests per second, and the processor time
of the client per request and per megabyte of events. The libraries take turns; the figure is the
median. They are installed into their own environments, beside this file, on the first run. This is
the experiment behind docs/decisions/0005.

Not measured: the whole client, see `make bench ARGS="--only client_tail"`.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
import venv
from pathlib import Path

from benchmarks import peers
from benchmarks.model import OURS_MEMORY, BenchmarkError
from tailrace import Client

HERE = Path(__file__).parent
LIBRARIES = {
    "http.client": "requirements.txt",
    "urllib3": "requirements.txt",
    "requests": "requirements.txt",
    "httpcore": "requirements.txt",
    "httpx": "requirements.txt",
    "niquests": "requirements-niquests.txt",
    "aiohttp": "requirements.txt",
    "httpx async": "requirements.txt",
}
REQUESTS, EVENTS, ROUNDS = 6400, 100_000, 3


def interpreter(requirements: str) -> Path:
    """Python in an environment with these requirements, created on the first run."""
    directory = HERE / f".venv-{Path(requirements).stem}"
    stamp = directory / ".stamp"
    if not stamp.exists():
        sys.stderr.write(f"installing {requirements}\n")
        venv.create(directory, with_pip=True, clear=True)
        pip = [str(directory / "bin" / "python"), "-m", "pip", "--disable-pip-version-check"]
        subprocess.run([*pip, "install", "--quiet", "-r", str(HERE / requirements)], check=True)
        stamp.touch()
    return directory / "bin" / "python"


def measure(library: str, work: str, url: str, concurrent: int, count: int) -> dict[str, float]:
    """Measure one library, in its own process."""
    script = [str(interpreter(LIBRARIES[library])), str(HERE / "one.py")]
    command = [*script, library, work, url, str(concurrent), str(count)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    found: dict[str, float] = json.loads(done.stdout)
    return found


def main() -> None:
    smoke = "--smoke" in sys.argv[1:]
    requests, events, rounds = (64, 1000, 1) if smoke else (REQUESTS, EVENTS, ROUNDS)
    works = [("1 at a time", "requests", 1), ("64 at once", "requests", 64), ("SSE", "events", 1)]
    found: dict[tuple[str, str], list[dict[str, float]]] = {}
    with (
        tempfile.TemporaryDirectory() as directory,
        peers.running(OURS_MEMORY, Path(directory)) as server,
    ):
        base = f"http://{server.host}:{server.port}"
        with Client(base) as client:
            client.stream("small").create("text/plain", body=b"x" * 1024)
            long = client.stream("long")
            long.create("application/json")
            with long.producer() as producer:
                for number in range(events):
                    producer.append_json({"id": number, "text": "x" * 200})
                producer.close_stream()
        urls = {
            "requests": f"{base}/v1/stream/small?offset=-1",
            "events": f"{base}/v1/stream/long?offset=-1&live=sse",
        }
        for _ in range(rounds):
            for title, work, concurrent in works:
                for library in LIBRARIES:
                    sys.stderr.write(f"{title}: {library}\n")
                    one = measure(library, work, urls[work], concurrent, requests)
                    found.setdefault((library, title), []).append(one)
    for title, work, _ in works:
        sizes = {library: {one["bytes"] for one in found[library, title]} for library in LIBRARIES}
        if len(set().union(*sizes.values())) != 1:
            raise BenchmarkError(f"{title}: the libraries read different sizes: {sizes}")
        print(f"\n{title}")
        for library in LIBRARIES:
            rows = found[library, title]
            size = rows[0]["bytes"]
            units = requests if work == "requests" else size / 1e6
            rate = statistics.median(units / one["seconds"] for one in rows)
            used = statistics.median(one["processor_seconds"] / units * 1e6 for one in rows)
            unit = "requests" if work == "requests" else "MB"
            print(f"  {library:12} {rate:8,.0f} {unit}/s {used:8,.0f} µs of processor each")


main()
