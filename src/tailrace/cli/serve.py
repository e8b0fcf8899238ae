"""`tailrace serve`: its flags are the table of settings."""

import sys
from collections.abc import Callable
from dataclasses import Field, fields
from pathlib import Path
from typing import Any

import click

from tailrace.cli.failures import ExitCode, Failure
from tailrace.server.settings import (
    ENV_PREFIX,
    Settings,
    SettingsError,
    load_settings,
    option_name,
)

__all__ = ["check_libraries", "serve"]


def _flags(command: Callable[..., None]) -> Callable[..., None]:
    """One flag for each setting. Values are checked by `load_settings`, like all others."""
    for item in reversed(fields(Settings)):
        command = _flag(item)(command)
    return command


def _flag(item: "Field[Any]") -> Callable[[Callable[..., None]], Callable[..., None]]:
    choices = item.metadata["choices"]
    metavar = "|".join(choices) if choices else type(item.default).__name__.upper()
    if isinstance(item.default, Path):
        metavar = "DIR"
    return click.option(
        option_name(item.name),
        metavar=metavar,
        help=f"{item.metadata['help']} [{ENV_PREFIX}{item.name.upper()}; default: {item.default}]",
    )


def check_libraries() -> None:
    """
    Make sure that this installation can serve.

    Raises:
        Failure: It has the client alone.
    """
    try:
        import tailrace.server.run  # noqa: F401 - whether it can be imported is the question
    except ModuleNotFoundError as error:
        if error.name is not None and error.name.startswith("tailrace"):
            raise
        raise Failure(
            "serving needs the server's libraries: pip install 'tailrace[server]'"
        ) from error


@click.command()
@_flags
@click.option(
    "--config",
    type=click.Path(path_type=Path),
    envvar=f"{ENV_PREFIX}CONFIG",
    help="TOML file with settings, named like the flags with underscores.",
)
def serve(config: Path | None, **flags: str | None) -> None:
    """Serve streams over HTTP."""
    check_libraries()
    from tailrace.engine.errors import EngineError
    from tailrace.server.run import serve as run

    try:
        settings = load_settings(flags, file=config)
        status = run(settings)
    except SettingsError as error:
        raise Failure(str(error), ExitCode.USAGE) from error
    except EngineError as error:
        raise Failure(str(error)) from error
    sys.exit(status)
