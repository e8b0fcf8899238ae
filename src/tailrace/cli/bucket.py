"""`tailrace bucket`: make, show and remove buckets."""

import click

from tailrace.cli.connection import Server, server_options
from tailrace.cli.head import show_fields
from tailrace.cli.output import fields_of, report
from tailrace.cli.parameters import BUCKET
from tailrace.cli.rm import confirm
from tailrace.client import Conflict

__all__ = ["bucket"]


@click.group()
def bucket() -> None:
    """
    Create, show and remove buckets.

    What is in one lists `tailrace ls`.
    """


@bucket.command()
@click.argument("bucket", type=BUCKET)
@server_options
@click.option("--exist-ok", is_flag=True, help="No error if it is there.")
def create(bucket: str, server: Server, exist_ok: bool) -> None:
    """Create a bucket: 4 to 64 of a-z, 0-9, _ and -."""
    with server.bucket(bucket, missing="") as found:
        made = True
        try:
            found.create()
        except Conflict as error:
            if not exist_ok or error.code not in (None, "bucket-exists"):
                raise
            made = False
    report(f"{bucket}: {'created' if made else 'was there'}")


@bucket.command()
@click.argument("bucket", type=BUCKET)
@server_options
@click.option("--json", "is_json", is_flag=True, help="As an object.")
def info(bucket: str, server: Server, is_json: bool) -> None:
    """Print what a bucket is: how many streams it has."""
    with server.bucket(bucket) as found:
        show_fields({"url": found.url, **fields_of(found.info())}, is_json=is_json)


@bucket.command()
@click.argument("bucket", type=BUCKET)
@server_options
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
def rm(bucket: str, server: Server, yes: bool) -> None:
    """Remove a bucket, which must be empty."""
    confirm(f"Remove the bucket {bucket}?", yes)
    with server.bucket(bucket, missing="") as found:
        found.delete()
    report(f"{bucket}: removed")
