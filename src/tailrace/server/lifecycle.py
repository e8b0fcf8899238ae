"""
The lifecycle of a server process: open, serve, drain, close.

SIGHUP reloads access, limits and certificates.

SIGTERM or SIGINT stops accepting, ends live readers with a last control event, finishes requests in
flight, closes the database and exits 0, soon after `drain_s` at the latest. A failed write or fsync
ends the process with status 1: its supervisor restarts it, and recovery finds what is acknowledged.
"""

import asyncio
import gc
import resource
import signal
import socket
import sys
from functools import partial
from ipaddress import ip_address
from typing import Final

import structlog
import uvloop
from msgspec.structs import replace

from tailrace import __version__
from tailrace.engine.base import Store
from tailrace.engine.engine import Engine
from tailrace.engine.memory import MemoryStore
from tailrace.server.guard.guard import Guard
from tailrace.server.observability.logging_setup import configure_logging
from tailrace.server.service import Service, clock_ms
from tailrace.server.settings import AccessNotConfigured, Settings, SettingsError
from tailrace.server.tls import Tls, TlsInvalid
from tailrace.server.transports.wire import WireServer

__all__ = ["check_exposure", "open_store", "serve"]

log = structlog.get_logger("tailrace")

# The syncer's thread wants the GIL back after an fsync; the default of 5 ms would be the commit's
# latency whenever the loop is busy.
_SWITCH_INTERVAL_S: Final = 0.0005
_GC_THRESHOLD: Final = 50_000
# Open files beside connections: RocksDB's tables and logs, snapshots, backups.
_OTHER_FILES: Final = 1024
# Responses to pending requests are still sent after storage failed.
_FAILURE_GRACE_S: Final = 1.0


def open_store(settings: Settings) -> Store:
    """
    Open the store of the settings.

    Raises:
        EngineError: It cannot be opened.
    """
    if settings.engine == "memory":
        return MemoryStore()
    # Imported here: the memory engine works without RocksDB's library.
    from tailrace.engine.rocks import RocksStore

    return RocksStore(settings.data_dir, settings.disk_reserve_bytes)


def serve(settings: Settings) -> int:
    """
    Run a server until a signal stops it; returns the exit status.

    Raises:
        SettingsError, AccessFileInvalid, LimitsFileInvalid, TlsInvalid, EngineError: It cannot run.
    """
    configure_logging(settings)
    sys.setswitchinterval(_SWITCH_INTERVAL_S)
    check_exposure(settings)
    settings = _within_open_files(settings)
    guard = Guard(settings)
    if settings.tls_key and not settings.tls_cert:
        raise SettingsError("--tls-key needs --tls-cert: without it nothing would be encrypted")
    tls = Tls(settings.tls_cert, settings.tls_key) if settings.tls_cert else None
    store = open_store(settings)
    # All objects so far live as long as the process: exclude them from garbage collection.
    gc.collect()
    gc.freeze()
    # A turn of the loop makes thousands of short-lived objects; cycles are rare.
    gc.set_threshold(_GC_THRESHOLD)
    return uvloop.run(_serve(settings, store, guard, tls))


def _within_open_files(settings: Settings) -> Settings:
    """
    Raise the limit of open files, and lower `connections_max` to fit it.

    Each connection is an open file, and the usual limit of a shell is a thousand. A store that
    cannot open its next log would end the server.
    """
    wanted = settings.connections_max + _OTHER_FILES
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return settings
    allowed = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    resource.setrlimit(resource.RLIMIT_NOFILE, (allowed, hard))
    if allowed >= wanted:
        return settings
    connections_max = max(1, allowed - min(_OTHER_FILES, allowed // 2))
    log.warning(
        "fewer connections than --connections-max: raise the limit of open files, ulimit -n",
        open_files_max=allowed,
        connections_max=connections_max,
    )
    return replace(settings, connections_max=connections_max)


def check_exposure(settings: Settings) -> None:
    """
    §10.1: refuse to serve a network without access control, unless the operator insists.

    Raises:
        SettingsError: The address is not loopback, without `--access` or `--insecure`.
    """
    if settings.access or settings.insecure or _is_loopback(settings.host):
        return
    raise AccessNotConfigured(settings.host)


def _is_loopback(host: str) -> bool:
    """Whether only this machine can reach a host, by all addresses of its name."""
    try:
        found = socket.getaddrinfo(host or None, 0, flags=socket.AI_PASSIVE)
    except OSError:
        # The name may resolve later, when the server listens on it.
        return False
    return all(ip_address(item[4][0]).is_loopback for item in found)


def _reload(service: Service, tls: Tls | None) -> None:
    """SIGHUP: reload what can change without closing a connection."""
    service.reload()
    if tls is not None:
        try:
            tls.reload()
        except TlsInvalid as error:
            log.error("the certificate is unchanged: correct it, then reload", error=str(error))
    log.info("reloaded")


async def _serve(settings: Settings, store: Store, guard: Guard, tls: Tls | None) -> int:
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    failed = False

    def on_failure(error: BaseException) -> None:
        nonlocal failed
        failed = True
        log.error("storage failed, stopping", error=str(error))
        stop.set()

    engine = Engine(store, clock=clock_ms, sliding=settings.ttl == "sliding", on_failure=on_failure)
    service = Service(engine, settings, guard)
    server = WireServer(service, settings, tls)
    try:
        port = await server.listen()
    except OSError as error:
        log.error(
            "cannot listen: choose another --host or --port",
            host=settings.host,
            port=settings.port,
            error=str(error),
        )
        await engine.close()
        return 1
    for signal_number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(signal_number, stop.set)
    loop.add_signal_handler(signal.SIGHUP, partial(_reload, service, tls))
    host = f"[{settings.host}]" if ":" in settings.host else settings.host
    log.info(
        "listening",
        url=f"{'http' if tls is None else 'https'}://{host}:{port}",
        access=settings.access or None,
        version=__version__,
        engine=settings.engine,
        data_dir=str(settings.data_dir) if settings.engine == "rocksdb" else None,
    )
    if store.cut_bytes:
        log.warning("the end of the log was damaged and has been cut off", bytes=store.cut_bytes)
    await stop.wait()
    log.info("stopping")
    cut = await server.drain(_FAILURE_GRACE_S if failed else settings.drain_s)
    await service.close()
    await engine.close()
    log.info("stopped", connections_cut=cut)
    return 1 if failed else 0
