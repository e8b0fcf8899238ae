"""Facts about the machine, such as the latency of its disk, and memory of processes."""

from __future__ import annotations

import os
import platform
import resource
import statistics
import subprocess
import tempfile
import threading
import time
from pathlib import Path
from types import TracebackType

from benchmarks import node
from benchmarks.load import wrk_version

PROBE_WRITES = 200
PROBE_BYTES = 4096
PEAK_POLL_SECONDS = 0.02


def facts(directory: Path) -> dict[str, str | int | float]:
    """Describe the machine, without its name or paths."""
    return {
        "cpu": _first_value("/proc/cpuinfo", "model name"),
        "cores": os.cpu_count() or 0,
        "memory": _first_value("/proc/meminfo", "MemTotal"),
        "system": f"{platform.system()} {platform.release()}",
        "filesystem": _filesystem(directory),
        "python": platform.python_version(),
        "node": node.version(),
        "wrk": wrk_version(),
        "fdatasync_4k_median_ms": fdatasync_milliseconds(directory),
    }


def fdatasync_milliseconds(directory: Path) -> float:
    """The median time to write 4 KiB to a file and force it to the disk."""
    times: list[float] = []
    block = os.urandom(PROBE_BYTES)
    with tempfile.TemporaryFile(dir=directory, buffering=0) as file:
        for _ in range(PROBE_WRITES):
            before = time.perf_counter()
            file.write(block)
            os.fdatasync(file.fileno())
            times.append(time.perf_counter() - before)
    return round(statistics.median(times) * 1000, 3)


def resident_megabytes(pid: int) -> float:
    """The resident memory of a process and of the processes it started."""
    total = int(_first_value(f"/proc/{pid}/status", "VmRSS").split()[0]) / 1024
    for task in Path(f"/proc/{pid}/task").iterdir():
        for child in (task / "children").read_text().split():
            total += resident_megabytes(int(child))
    return round(total, 1)


def allow_many_files() -> int:
    """Raise the limit of open files as far as the system allows; returns the limit."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return hard


def _first_value(file: str, key: str) -> str:
    """The value of the first ``key: value`` line of a file below /proc."""
    for line in Path(file).read_text().splitlines():
        name, _, value = line.partition(":")
        if name.strip() == key:
            return value.strip()
    return "unknown"


def _filesystem(directory: Path) -> str:
    """The type of the file system that holds a directory."""
    found = subprocess.run(
        ["stat", "--file-system", "--format=%T", str(directory)],
        capture_output=True,
        text=True,
        check=False,
    )
    return found.stdout.strip() or "unknown"


class PeakMemory:
    """The peak resident memory of a process within the block, by frequent sampling."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch)
        self.megabytes = 0.0

    def __enter__(self) -> PeakMemory:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stop.set()
        self._thread.join()

    def _watch(self) -> None:
        while True:
            self.megabytes = max(self.megabytes, resident_megabytes(self._pid))
            if self._stop.wait(PEAK_POLL_SECONDS):
                return
