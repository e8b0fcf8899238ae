"""
`tailrace serve` on a disk that fails permanently when the test says so.

The kernel fails the system calls: a seccomp filter on all threads returns EIO, either for every
call that makes data durable or for writes to the write-ahead log. RocksDB and the engine are
unchanged. A filter cannot be removed; the test restarts the server without it.

Run it as the server: `python -m tests.support.faulty_disk serve …`. The disk fails when the file
that `TAILRACE_TEST_FAULT` names appears; its text says how. A file with the suffix `.broken`
reports that the filter is active.
"""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import struct
import threading
import time
from collections.abc import Iterable
from pathlib import Path

from tailrace.cli import main
from tests.support.server import ServerProcess
from tests.support.together import wait_until

FAULT_VARIABLE = "TAILRACE_TEST_FAULT"
SYNC = "sync"
WRITE = "write"

# linux/audit.h, and numbers of system calls.
_MACHINES = {
    "x86_64": (
        0xC000003E,
        {"fsync": 74, "fdatasync": 75, "msync": 26, "sync_file_range": 277, "seccomp": 317}
        | {"write": 1, "pwrite64": 18, "writev": 20, "pwritev": 296},
    ),
    "aarch64": (
        0xC00000B7,
        {"fsync": 82, "fdatasync": 83, "msync": 227, "sync_file_range": 84, "seccomp": 277}
        | {"write": 64, "pwrite64": 68, "writev": 66, "pwritev": 70},
    ),
}
SUPPORTED = platform.system() == "Linux" and platform.machine() in _MACHINES

# linux/prctl.h, linux/seccomp.h, linux/bpf_common.h.
_PR_SET_NO_NEW_PRIVS = 38
_SECCOMP_SET_MODE_FILTER = 1
_SECCOMP_FILTER_FLAG_TSYNC = 1
_RET_ALLOW = 0x7FFF0000
_RET_ERRNO = 0x00050000
_LOAD = 0x20
_JUMP_IF_EQUAL = 0x15
_RETURN = 0x06
_AT_NUMBER, _AT_MACHINE, _AT_FIRST_ARGUMENT = 0, 4, 16


class FaultyDiskServer(ServerProcess):
    """A server process on a disk that the test can break."""

    def __init__(self, data_dir: Path, control_dir: Path, *args: str) -> None:
        self._fault = control_dir / "fault"
        super().__init__(data_dir, *args, env={FAULT_VARIABLE: str(self._fault)})

    def _command(self, port: int) -> list[str]:
        command = super()._command(port)
        at = command.index("tailrace")
        return [*command[:at], "tests.support.faulty_disk", *command[at + 1 :]]

    def break_disk(self, how: str) -> None:
        """Break the disk, and return when it is broken."""
        draft = self._fault.with_suffix(".draft")
        draft.write_text(how)
        draft.rename(self._fault)
        wait_until(self._fault.with_suffix(".broken").exists)

    def mend_disk(self) -> None:
        """Let the next start be on a disk that works."""
        self._fault.unlink()
        self._fault.with_suffix(".broken").unlink()


def _instruction(code: int, value: int, if_true: int = 0, if_false: int = 0) -> bytes:
    return struct.pack("=HBBI", code, if_true, if_false, value)


def _program(machine: int, numbers: Iterable[int], files: list[int]) -> bytes:
    """A filter that fails these calls with EIO; if files are given, for these files only."""
    refuse = _instruction(_RETURN, _RET_ERRNO | errno.EIO)
    allow = _instruction(_RETURN, _RET_ALLOW)
    program = [
        _instruction(_LOAD, _AT_MACHINE),
        _instruction(_JUMP_IF_EQUAL, machine, 1, 0),
        allow,
    ]
    for number in numbers:
        if not files:
            program += [
                _instruction(_LOAD, _AT_NUMBER),
                _instruction(_JUMP_IF_EQUAL, number, 0, 1),
                refuse,
            ]
        for file in files:
            program += [
                _instruction(_LOAD, _AT_NUMBER),
                _instruction(_JUMP_IF_EQUAL, number, 0, 3),
                _instruction(_LOAD, _AT_FIRST_ARGUMENT),
                _instruction(_JUMP_IF_EQUAL, file, 0, 1),
                refuse,
            ]
    return b"".join([*program, allow])


def _install(program: bytes, seccomp: int) -> None:
    """Install the filter on every thread of this process."""

    class Program(ctypes.Structure):
        _fields_ = (("length", ctypes.c_ushort), ("filter", ctypes.c_void_p))

    libc = ctypes.CDLL(None, use_errno=True)
    buffer = ctypes.create_string_buffer(program, len(program))
    argument = Program(len(program) // 8, ctypes.addressof(buffer))
    if libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl")
    result = libc.syscall(
        seccomp, _SECCOMP_SET_MODE_FILTER, _SECCOMP_FILTER_FLAG_TSYNC, ctypes.byref(argument)
    )
    if result != 0:
        raise OSError(ctypes.get_errno(), "seccomp")


def _open_logs() -> list[int]:
    """The file descriptors of write-ahead logs."""
    found = []
    for entry in Path("/proc/self/fd").iterdir():
        try:
            if entry.readlink().suffix == ".log":
                found.append(int(entry.name))
        except OSError:
            continue
    return found


def _break(how: str) -> None:
    machine, numbers = _MACHINES[platform.machine()]
    if how == SYNC:
        names, files = ("fsync", "fdatasync", "msync", "sync_file_range"), []
    else:
        names, files = ("write", "pwrite64", "writev", "pwritev"), _open_logs()
        assert files, "no log is open"
    calls = [numbers[name] for name in names]
    _install(_program(machine, calls, files), numbers["seccomp"])


def _watch(fault: Path) -> None:
    while not fault.exists():
        time.sleep(0.005)
    _break(fault.read_text())
    fault.with_suffix(".broken").touch()


if __name__ == "__main__":
    watcher = threading.Thread(target=_watch, args=(Path(os.environ[FAULT_VARIABLE]),), daemon=True)
    watcher.start()
    main()
