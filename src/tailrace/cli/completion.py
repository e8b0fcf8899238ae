"""`tailrace completion`: what a shell needs to complete our commands."""

import click
from click.shell_completion import get_completion_class

from tailrace.cli.output import Output

__all__ = ["completion"]


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """
    Print a script that lets a shell complete commands.

    For bash: eval "$(tailrace completion bash)"
    """
    found = get_completion_class(shell)
    assert found is not None
    root = ctx.find_root().command
    output = Output()
    output.line(found(root, {}, "tailrace", "_TAILRACE_COMPLETE").source().encode())
    output.flush()
