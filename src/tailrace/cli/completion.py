"""`tailrace completion`: completion scripts for shells."""

import click
from click.shell_completion import get_completion_class

from tailrace.cli.output import print_lines

__all__ = ["completion"]


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """
    Print a script that enables completion in a shell.

    For bash: eval "$(tailrace completion bash)"
    """
    kind = get_completion_class(shell)
    assert kind is not None
    print_lines(kind(ctx.find_root().command, {}, "tailrace", "_TAILRACE_COMPLETE").source())
