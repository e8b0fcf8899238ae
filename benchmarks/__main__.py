"""The command line: which works to measure, on which servers, and where to write."""

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
    """Measure, print the table and write the results; the exit status."""
    options = _options()
    sizes: Sizes = options.sizes
    rounds: int = options.rounds or (1 if sizes is SMOKE else 3)
    chosen = [work for work in WORKLOADS if not options.only or work.name in options.only]
    servers = _servers(options.against, without_ours=options.without_ours)
    try:
        _prepare(servers)
        facts = machine.facts(options.dir)
    except BenchmarkError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2

    began = time.monotonic()
    for name, value in facts.items():
        _say(f"{name}: {value}")
    results: dict[str, object] = {}
    all_lines: list[report.Line] = []
    wrong: list[str] = []
    for work in chosen:
        found, failures = _measure(work, servers, sizes, rounds, options.dir)
        lines = report.lines(work, found)
        all_lines += lines
        wrong += failures
        results[work.name] = {
            "question": work.question,
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
        "wrong": wrong,
    }
    options.out.write_text(json.dumps(written, indent=2) + "\n")

    print(report.table(all_lines))
    if sizes is SMOKE:
        print("\nThese are smoke sizes: they show that everything works, not how fast it is.")
    for text in wrong:
        print(f"WRONG: {text}", file=sys.stderr)
    return 1 if wrong else 0


def _measure(
    work: Workload, servers: list[str], sizes: Sizes, rounds: int, directory: Path
) -> tuple[report.Rounds, list[str]]:
    """All rounds of one work, one server at a time, in turn."""
    asked = [peer for peer in servers if peer in work.peers]
    found: report.Rounds = {peer: [] for peer in asked}
    wrong: list[str] = []
    _say(f"{work.name}: {work.question}")
    for number in range(1 if work.one_round else rounds):
        for peer in asked:
            place = f"{work.name}, {peer}, round {number + 1}"
            try:
                with peers.running(peer, directory, work.options) as server:
                    outcome = work.run(server, sizes, _speaker(place))
            except (BenchmarkError, OSError, ValueError, subprocess.SubprocessError) as error:
                wrong.append(f"{place}: {error}")
                _say(f"{place}: failed: {error}")
                continue
            found[peer].append(outcome)
            wrong += [f"{place}: {_tell(check)}" for check in outcome.checks if not check.right]
            _say(f"{place}: {_tell_checks(outcome)}")
    return found, wrong


def _prepare(servers: list[str]) -> None:
    """See that everything needed is there before any time is spent."""
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


def _tell(check: Check) -> str:
    return f"{check.name}: expected {check.expected}, found {check.found}"


def _tell_checks(outcome: Outcome) -> str:
    right = sum(check.right for check in outcome.checks)
    return f"{right} of {len(outcome.checks)} checks right"


def _speaker(place: str) -> Progress:
    return lambda text: _say(f"{place}: {text}")


def _say(text: str) -> None:
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
        description="Measure Tailrace beside the reference server of the protocol.",
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
        choices=[work.name for work in WORKLOADS],
        metavar="NAME",
        help="only this work; may be given more than once: %(choices)s",
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
        help="where the data directories go; it should be on a real disk",
    )
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
