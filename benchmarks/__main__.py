"""The command line: which workloads to measure, on which servers, and where to write."""

from __future__ import annotations

import argparse
import datetime
import importlib.util
import json
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict
from pathlib import Path

from benchmarks import machine, node, peers, report
from benchmarks.load import require_wrk
from benchmarks.model import (
    ALL_PEERS,
    FULL,
    OURS,
    QUICK,
    SMOKE,
    BenchmarkError,
    Check,
    Outcome,
    Progress,
    Sizes,
    Workload,
)
from benchmarks.workloads import WORKLOADS

OTHERS = tuple(peer for peer in ALL_PEERS if peer != OURS)
RESULTS = Path(__file__).parent / "results.json"


def main() -> int:
    """Measure, print the table and write the results; returns the exit status."""
    options = _options()
    sizes: Sizes = options.sizes
    rounds: int = options.rounds or (1 if sizes is SMOKE else 3)
    chosen = [item for item in WORKLOADS if not options.only or item.name in options.only]
    servers = _servers(options.against, without_ours=options.without_ours)
    try:
        _prepare(servers)
        facts = machine.facts(options.dir)
    except BenchmarkError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2

    began = time.monotonic()
    for name, value in facts.items():
        _print(f"{name}: {value}")
    results: dict[str, object] = {}
    all_lines: list[report.Line] = []
    failed: list[str] = []
    for workload in chosen:
        found, failures = _measure(workload, servers, sizes, rounds, options.dir)
        lines = report.lines(workload, found)
        all_lines += lines
        failed += failures
        results[workload.name] = {
            "question": workload.question,
            "rounds": {peer: [asdict(one) for one in each] for peer, each in found.items()},
            "medians": report.medians(found),
            "lines": [line.as_json() for line in lines],
        }

    written = {
        "at": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "took_seconds": round(time.monotonic() - began, 1),
        "machine": facts,
        "rounds": rounds,
        "sizes": asdict(sizes),
        "works": results,
        "wrong": failed,
    }
    options.out.write_text(json.dumps(written, indent=2) + "\n")

    print(report.table(all_lines))
    if sizes is SMOKE:
        print("\nThese are smoke sizes: they show that everything runs, not how fast.")
    for text in failed:
        print(f"FAILED: {text}", file=sys.stderr)
    return 1 if failed else 0


def _measure(
    workload: Workload, servers: list[str], sizes: Sizes, rounds: int, directory: Path
) -> tuple[report.Rounds, list[str]]:
    """All rounds of one workload; the servers take turns."""
    asked = [peer for peer in servers if peer in workload.peers]
    found: report.Rounds = {peer: [] for peer in asked}
    failed: list[str] = []
    _print(f"{workload.name}: {workload.question}")
    for number in range(1 if workload.one_round else rounds):
        for peer in asked:
            label = f"{workload.name}, {peer}, round {number + 1}"
            try:
                with peers.running(peer, directory, workload.options) as server:
                    outcome = workload.run(server, sizes, _printer(label))
            except (BenchmarkError, OSError, ValueError, subprocess.SubprocessError) as error:
                failed.append(f"{label}: {error}")
                _print(f"{label}: failed: {error}")
                continue
            found[peer].append(outcome)
            failed += [
                f"{label}: {_describe(check)}" for check in outcome.checks if not check.right
            ]
            _print(f"{label}: {_describe_checks(outcome)}")
    return found, failed


def _prepare(servers: list[str]) -> None:
    """Check that everything needed is installed before the first measurement."""
    require_wrk()
    machine.allow_many_files()
    if any(peer.startswith("reference") for peer in servers):
        node.install_reference()
    ours = any(peer.startswith("ours") for peer in servers)
    if ours and importlib.util.find_spec("tailrace") is None:
        raise BenchmarkError("tailrace is not installed in this Python environment")


def _servers(against: list[str], *, without_ours: bool) -> list[str]:
    """The peers to measure, in the order of the table."""
    wanted = set(against) | (set() if without_ours else {OURS})
    return [peer for peer in ALL_PEERS if peer in wanted]


def _describe(check: Check) -> str:
    return f"{check.name}: expected {check.expected}, found {check.found}"


def _describe_checks(outcome: Outcome) -> str:
    right = sum(check.right for check in outcome.checks)
    return f"{right} of {len(outcome.checks)} checks right"


def _printer(label: str) -> Progress:
    return lambda text: _print(f"{label}: {text}")


def _print(text: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {text}", file=sys.stderr, flush=True)


def _peer_names(text: str) -> list[str]:
    names = [] if text == "none" else text.split(",")
    unknown = set(names) - set(OTHERS)
    if unknown:
        raise argparse.ArgumentTypeError(f"choose from {', '.join(OTHERS)}, or none")
    return names


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks",
        description="Measure Tailrace and the reference server of the protocol.",
    )
    how_much = parser.add_mutually_exclusive_group()
    how_much.add_argument(
        "--smoke",
        dest="sizes",
        action="store_const",
        const=SMOKE,
        help="tiny sizes and one round: does everything work?",
    )
    how_much.add_argument(
        "--quick",
        dest="sizes",
        action="store_const",
        const=QUICK,
        help="shorter runs and 100,000 instead of 1,000,000 streams",
    )
    parser.set_defaults(sizes=FULL)
    parser.add_argument(
        "--only",
        action="append",
        choices=[workload.name for workload in WORKLOADS],
        metavar="NAME",
        help="only this workload; can be repeated: %(choices)s",
    )
    parser.add_argument("--rounds", type=int, help="rounds per server (3; 1 with --smoke)")
    parser.add_argument(
        "--against",
        type=_peer_names,
        default=list(OTHERS),
        metavar="PEERS",
        help=f"peers, separated by commas, or none ({','.join(OTHERS)})",
    )
    parser.add_argument(
        "--without-ours", action="store_true", help="measure only the peers named by --against"
    )
    parser.add_argument("--out", type=Path, default=RESULTS, help="the JSON file to write")
    parser.add_argument(
        "--dir",
        type=Path,
        default=Path(tempfile.gettempdir()),
        help="parent of the data directories; it should be on a real disk",
    )
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
