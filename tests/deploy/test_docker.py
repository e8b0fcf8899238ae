"""
deploy/Dockerfile without Docker: each of its steps is done by the test.

A build needs an engine and a base image from a registry; machines that run tests often have
neither. So the test parses the file, copies what it copies (and .dockerignore allows), builds the
wheel with its commands, and starts its command with its variables. Not tested: the base image, the
installation of the locked dependencies (`make install` does the same), and the user.
"""

import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import zipfile
from fnmatch import fnmatch
from pathlib import Path

import pytest

from tailrace.server.lifecycle import check_exposure
from tailrace.server.settings import SettingsError, load_settings
from tests.support.http import request
from tests.support.server import REPO_ROOT
from tests.support.together import HANG_S, wait_until

DOCKERFILE = REPO_ROOT / "deploy" / "Dockerfile"
BUILT = "/opt/tailrace/bin/"


def instructions() -> list[tuple[str, str]]:
    """Each instruction and its argument, in order; continued lines are joined."""
    text = re.sub(r"^\s*#.*\n", "", DOCKERFILE.read_text(), flags=re.MULTILINE)
    lines = re.sub(r"\\\n\s*", " ", text).splitlines()
    return [(word, rest) for word, _, rest in (line.partition(" ") for line in lines) if word]


def instruction(name: str) -> str:
    (found,) = [rest for word, rest in instructions() if word == name]
    return found


def variables() -> dict[str, str]:
    return dict(word.partition("=")[::2] for word in shlex.split(instruction("ENV")))


def ignored(path: str) -> bool:
    """Whether .dockerignore excludes a path: the last match decides, also for paths below."""
    verdict = False
    for line in (REPO_ROOT / ".dockerignore").read_text().splitlines():
        pattern = line.strip().removeprefix("!")
        if not pattern or pattern.startswith("#"):
            continue
        parts = path.split("/")
        candidates = ["/".join(parts[: end + 1]) for end in range(len(parts))]
        if pattern.startswith("**/"):
            matches = any(fnmatch(part, pattern[3:]) for part in parts)
        else:
            matches = any(fnmatch(candidate, pattern) for candidate in candidates)
        if matches:
            verdict = not line.startswith("!")
    return verdict


@pytest.fixture(scope="module")
def context(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The build's directory after its COPY steps."""
    directory = tmp_path_factory.mktemp("build")
    for word, rest in instructions():
        if word != "COPY" or rest.startswith("--from"):
            continue
        *sources, target = rest.split()
        for source in sources:
            there = REPO_ROOT / source
            assert there.exists(), source
            files = [there] if there.is_file() else [f for f in there.rglob("*") if f.is_file()]
            names = [str(file.relative_to(REPO_ROOT)) for file in files]
            kept = [name for name in names if not ignored(name)]
            assert kept, f"nothing of {source} reaches the builder"
            for name in kept:
                to = directory / (name if there.is_dir() or target == "./" else target)
                to.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(REPO_ROOT / name, to)
    return directory


@pytest.fixture(scope="module")
def installed(context: Path) -> Path:
    """The directory where the wheel is installed."""
    steps = [shlex.split(rest) for word, rest in instructions() if word == "RUN"]
    (build,) = [step for step in steps if step[1:2] == ["wheel"]]
    (install,) = [step for step in steps if "--find-links" in step]
    target = context / "installed"
    for step, more in ((build, []), (install, ["--target", str(target)])):
        assert step[0] == BUILT + "pip"
        subprocess.run(
            [sys.executable, "-m", "pip", "--disable-pip-version-check", "-q", *step[1:], *more],
            cwd=context, check=True, timeout=100,
        )  # fmt: skip
    return target


def test_ignored_files_do_not_reach_the_builder(context: Path) -> None:
    assert ignored("data/CURRENT") and ignored(".git/HEAD") and ignored(".venv/bin/python")
    assert ignored("src/tailrace/__pycache__/asgi.pyc")
    assert not list(context.rglob("*.pyc"))
    assert (context / "requirements" / "run.txt").is_file()


def test_dependencies_are_installed_by_their_hashes() -> None:
    (step,) = [rest for word, rest in instructions() if word == "RUN" and "run.txt" in rest]
    assert "--require-hashes" in step


@pytest.mark.slow
def test_the_wheel_has_every_file_of_the_package(context: Path, installed: Path) -> None:
    """Also those that are not code, such as the page's."""
    (wheel,) = (context / "dist").glob("*.whl")
    packed = set(zipfile.ZipFile(wheel).namelist())
    source = context / "src"
    files = {str(file.relative_to(source)) for file in source.rglob("*") if file.is_file()}
    assert files <= packed
    assert any(name.startswith("tailrace/server/handlers/ui/") for name in packed)
    assert (installed / "tailrace" / "__main__.py").is_file()


def test_the_user_is_not_root_and_data_is_on_a_volume() -> None:
    assert instruction("USER") == "tailrace"
    assert instruction("VOLUME") == variables()["TAILRACE_DATA_DIR"] == "/data"
    assert instruction("EXPOSE") == variables()["TAILRACE_PORT"]
    (made,) = [rest for word, rest in instructions() if word == "RUN" and "useradd" in rest]
    assert "--owner tailrace --group tailrace --mode 0700 /data" in made


def started(installed: Path, directory: Path, changes: dict[str, str]) -> "subprocess.Popen[str]":
    """Run ENTRYPOINT and CMD with the variables of ENV, in a directory of the test."""
    command: list[str] = json.loads(instruction("ENTRYPOINT")) + json.loads(instruction("CMD"))
    assert command[0] == "tailrace"
    (directory / "data").mkdir()
    own = {"TAILRACE_PORT": "0", "TAILRACE_DATA_DIR": str(directory / "data"), **changes}
    return subprocess.Popen(
        [sys.executable, "-m", *command],
        env={**os.environ, **variables(), "PATH": os.environ["PATH"], **own,
             "PYTHONPATH": str(installed)},
        cwd=directory, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


@pytest.mark.slow
def test_it_does_not_serve_a_network_without_access_control(
    installed: Path, tmp_path: Path
) -> None:
    """With its own variables: the access file is missing, and the error says how to make one."""
    assert variables()["TAILRACE_HOST"] == "0.0.0.0"
    access = variables()["TAILRACE_ACCESS"]
    assert access.startswith("/etc/tailrace/")
    missing = str(tmp_path / "access.toml")
    with started(installed, tmp_path, {"TAILRACE_ACCESS": missing}) as process:
        _, error = process.communicate(timeout=60)
    assert process.returncode == 2
    assert missing in error and "tailrace token new" in error


def test_it_can_serve_without_access_control() -> None:
    """By the variables that the file and docs/deploy.md name."""
    given = re.search(r"-e TAILRACE_ACCESS= -e (TAILRACE_INSECURE)=(\d)", DOCKERFILE.read_text())
    assert given is not None
    assert given[0] in (REPO_ROOT / "docs" / "deploy.md").read_text()
    insecure = {**variables(), "TAILRACE_ACCESS": "", given[1]: given[2]}
    check_exposure(load_settings(environ=insecure))
    with pytest.raises(SettingsError):
        check_exposure(load_settings(environ={**insecure, given[1]: "0"}))


@pytest.mark.slow
def test_its_command_serves_and_is_healthy(installed: Path, tmp_path: Path) -> None:
    """The command, the health check, and the stop signal."""
    access = tmp_path / "access.toml"
    access.write_text('[anonymous]\ngrants = ["read:/"]\n')
    access.chmod(0o600)
    changes = {"TAILRACE_HOST": "127.0.0.1", "TAILRACE_ACCESS": str(access)}
    with started(installed, tmp_path, changes) as process:
        try:
            assert process.stderr is not None
            first = next(line for line in process.stderr if '"listening"' in line)
            url = json.loads(first)["url"]
            assert healthy(url.rpartition(":")[2]) == 0
            assert request("PUT", f"{url}/v1/stream/s").status in (401, 403)
            process.send_signal(signal.Signals[instruction("STOPSIGNAL")])
            assert process.wait(HANG_S) == 0
        finally:
            if process.poll() is None:
                process.kill()
    wait_until(lambda: healthy(url.rpartition(":")[2]) != 0)


def healthy(port: str) -> int:
    """The exit status of the command of HEALTHCHECK."""
    command = json.loads(instruction("HEALTHCHECK").partition(" CMD ")[2])
    assert command[0] == "python"
    return subprocess.run(
        [sys.executable, *command[1:]],
        env={**os.environ, "TAILRACE_PORT": port}, capture_output=True, check=False, timeout=60,
    ).returncode  # fmt: skip
