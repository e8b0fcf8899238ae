"""`tailrace subscription`: create, show and remove subscriptions, and work for them."""

import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from functools import wraps
from typing import Any, Final

import click

from tailrace.cli.connection import (
    Command,
    Location,
    Patience,
    Server,
    bucket_option,
    server_options,
)
from tailrace.cli.error_messages import failure_for
from tailrace.cli.failures import Failure
from tailrace.cli.head import as_object_option
from tailrace.cli.output import as_json, fields_of, print_lines, report, table
from tailrace.cli.parameters import TEXT, count_option
from tailrace.cli.rm import confirm, yes_option
from tailrace.client import NotFound, Subscription, SubscriptionInfo, TailraceError, Wake
from tailrace.exceptions import ExitCode

__all__ = ["subscription"]

_TITLES: Final = ("ID", "TYPE", "PATTERN", "PENDING", "STATUS", "LAST ERROR")


@contextmanager
def _errors(server: Server, bucket: str, subscription_id: str = "") -> Iterator[None]:
    """Errors of the client become a `Failure`."""
    name = "/".join(filter(None, (bucket, subscription_id)))
    try:
        yield
    except NotFound as error:
        if error.code == "bucket-not-found":
            raise failure_for(error, Location(server, "", bucket)) from error
        reason = "no such subscription"
        hint = f"tailrace subscription create {subscription_id} --help"
        raise Failure(f"{name}: {reason} (404)", ExitCode.NOT_FOUND, hint) from error
    except TailraceError as error:
        raise failure_for(error, Location(server, name, ""), "") from error


def _subscription_argument(
    patience: Patience = Patience.BRIEF,
) -> Callable[[Command], Command]:
    """ID, its bucket and its server; the command gets `found`."""

    def decorate(command: Command) -> Command:
        @click.argument("subscription_id", metavar="ID", type=TEXT)
        @bucket_option
        @server_options
        @wraps(command)
        def run(
            *args: Any, subscription_id: str, bucket: str, server: Server, **kwargs: Any
        ) -> None:
            with (
                server.client(patience) as client,
                _errors(server, bucket, subscription_id),
            ):
                parent = client.bucket(bucket) if bucket else client
                command(*args, found=parent.subscription(subscription_id), **kwargs)

        return run

    return decorate


@click.group()
def subscription() -> None:
    """
    Create, show and remove subscriptions, and work for them.

    A subscription keeps a cursor for each stream that it matches, and wakes workers when there is
    more: by a webhook, or by an event in a stream of your own (pull-wake).
    """


@subscription.command()
@_subscription_argument()
@click.option("--pattern", type=TEXT, help="Paths to match: * is one segment, ** any number.")
@click.option("--stream", "streams", multiple=True, type=TEXT, help="A stream. Repeatable.")
@click.option("--webhook", type=TEXT, metavar="URL", help="Send wakes to this URL.")
@click.option("--wake-stream", type=TEXT, metavar="PATH", help="Append wakes to this stream.")
@count_option("--lease-ms", least=1, help="Duration of a lease.  [default: 30000]")
@click.option("--description", type=TEXT, help="A note.")
def create(
    found: Subscription,
    pattern: str | None,
    streams: tuple[str, ...],
    webhook: str | None,
    wake_stream: str | None,
    lease_ms: int | None,
    description: str | None,
) -> None:
    """
    Create a subscription, with --webhook or --wake-stream.

    It succeeds if the subscription exists with the same configuration.
    """
    if (webhook is None) == (wake_stream is None):
        raise click.UsageError("give one of --webhook and --wake-stream")
    if pattern is None and not streams:
        raise click.UsageError("give --pattern, or --stream, or both")
    info = found.create(
        pattern=pattern,
        streams=streams,
        webhook=webhook,
        wake_stream=wake_stream,
        lease_ttl_ms=lease_ms,
        description=description,
    )
    report(f"{info.id}: {'created' if info.new else 'exists'}")


@subscription.command()
@_subscription_argument()
@as_object_option
def show(found: Subscription, is_json: bool) -> None:
    """Print a subscription, its streams and their cursors."""
    info = found.get()
    if is_json:
        print_lines(as_json(asdict(info)))
        return
    fields = fields_of(info)
    for name in ("streams", "new"):
        fields.pop(name, None)
    print_lines(*(f"{name}: {value}" for name, value in fields.items()))
    for stream in info.streams:
        pending = "pending" if stream.has_pending else "up to date"
        print_lines(f"stream: {stream.path} {stream.link_type} {stream.acked_offset} {pending}")


@subscription.command("list")
@bucket_option
@server_options
@click.option("--json", "is_json", is_flag=True, help="Print one JSON object per line.")
def list_(bucket: str, server: Server, is_json: bool) -> None:
    """List the subscriptions of a bucket, or of the server's base surface."""
    with server.client() as client, _errors(server, bucket):
        parent = client.bucket(bucket) if bucket else client
        infos = list(parent.subscriptions.list())
    if is_json:
        print_lines(*(as_json(asdict(info)) for info in infos))
    elif infos:
        print_lines(*table([_TITLES, *map(_row, infos)], [0] * len(_TITLES)))
    else:
        report("no subscriptions")


def _row(info: SubscriptionInfo) -> tuple[str, ...]:
    pending = "" if info.pending_streams is None else str(info.pending_streams)
    return info.id, info.type, info.pattern or "", pending, info.status, info.last_error or ""


@subscription.command()
@_subscription_argument()
@yes_option
def delete(found: Subscription, yes: bool) -> None:
    """Delete a subscription and its cursors; the streams stay."""
    confirm("Delete the subscription and its cursors?", yes)
    found.delete()
    report("deleted")


@subscription.command()
@_subscription_argument()
@click.argument("paths", metavar="PATH...", nargs=-1, required=True, type=TEXT)
def add(found: Subscription, paths: tuple[str, ...]) -> None:
    """Link streams to a subscription, from their present tails on."""
    found.add_streams(paths)


@subscription.command()
@_subscription_argument()
@click.argument("paths", metavar="PATH...", nargs=-1, required=True, type=TEXT)
def remove(found: Subscription, paths: tuple[str, ...]) -> None:
    """Remove explicit links; streams that the pattern matches stay linked."""
    for path in paths:
        found.remove_stream(path)


@subscription.command()
@_subscription_argument(Patience.ENDLESS)
@click.option("--worker", type=TEXT, help="The name of this worker.  [default: host:pid]")
@click.option("--once", is_flag=True, help="End when there is nothing to claim.")
@click.option(
    "--exec",
    "command",
    type=TEXT,
    metavar="COMMAND",
    help="Run this shell command for each wake, with the wake as JSON on its standard input.",
)
def work(found: Subscription, worker: str | None, once: bool, command: str | None) -> None:
    """
    Claim the wakes of a pull-wake subscription, one after the other.

    Each wake is printed as a JSON object with its pending streams, and acknowledged. With --exec,
    it is acknowledged if the command succeeds; if not, it is given back and this command ends.
    """
    for wake in found.work(worker, wait=not once):
        line = as_json({"generation": wake.generation, "streams": _pending(wake)})
        if command is None:
            print_lines(line)
            continue
        status = subprocess.run(command, shell=True, input=line + b"\n", check=False).returncode
        if status:
            raise Failure(f"the command ended with {status}: the wake was given back")


def _pending(wake: Wake) -> list[dict[str, Any]]:
    return [
        {
            "path": stream.path,
            "acked_offset": stream.acked_offset,
            "tail_offset": stream.tail_offset,
        }
        for stream in wake.pending
    ]
