"""`tailrace bucket`: create, show and remove buckets."""

import click

from tailrace.cli.connection import Server, server_options
from tailrace.cli.head import as_object_option, show_fields
from tailrace.cli.output import fields_of, report
from tailrace.cli.parameters import BUCKET
from tailrace.cli.rm import confirm, yes_option
from tailrace.client import Conflict

__all__ = ["bucket"]

_bucket_argument = click.argument("bucket", type=BUCKET)


@click.group()
def bucket() -> None:
    """
    Create, show and remove buckets.

    `tailrace ls` lists the streams of a bucket.
    """


@bucket.command()
@_bucket_argument
@server_options
@click.option("--exist-ok", is_flag=True, help="Succeed if the bucket exists.")
def create(bucket: str, server: Server, exist_ok: bool) -> None:
    """Create a bucket. Its name is 4 to 64 of a-z, 0-9, _ and -."""
    with server.bucket(bucket, missing="") as found:
        created = True
        try:
            found.create()
        except Conflict as error:
            if not exist_ok or error.code not in (None, "bucket-exists"):
                raise
            created = False
    report(f"{bucket}: {'created' if created else 'exists'}")


@bucket.command()
@_bucket_argument
@server_options
@as_object_option
def info(bucket: str, server: Server, is_json: bool) -> None:
    """Print the metadata of a bucket: its number of streams."""
    with server.bucket(bucket) as found:
        show_fields({"url": found.url, **fields_of(found.info())}, is_json=is_json)


@bucket.command()
@_bucket_argument
@server_options
@yes_option
def rm(bucket: str, server: Server, yes: bool) -> None:
    """Remove an empty bucket."""
    confirm(f"Remove the bucket {bucket}?", yes)
    with server.bucket(bucket, missing="") as found:
        found.delete()
    report(f"{bucket}: removed")
