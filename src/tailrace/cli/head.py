"""`tailrace head`."""

import click

from tailrace.cli.connection import Target, stream_argument
from tailrace.cli.failures import one_line
from tailrace.cli.output import Output, fields_of

__all__ = ["head", "show_fields"]


@click.command()
@stream_argument
@click.option("--json", "is_json", is_flag=True, help="As an object.")
def head(target: Target, is_json: bool) -> None:
    """Print what a stream is: type, tail, state."""
    with target.stream() as stream:
        show_fields({"url": stream.url, **fields_of(stream.head())}, is_json=is_json)


def show_fields(fields: dict[str, object], *, is_json: bool) -> None:
    """Names and values, a line each, or as an object."""
    output = Output()
    if is_json:
        output.json(fields)
    else:
        for name, value in fields.items():
            text = str(value).lower() if isinstance(value, bool) else str(value)
            output.line(f"{name}: {one_line(text)}".encode())
    output.flush()
