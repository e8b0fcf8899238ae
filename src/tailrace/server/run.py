"""
A server's life: open, serve, drain, close.

SIGHUP reads access, limits and certificates anew.

SIGTERM or SIGINT stops accepting, ends live readers with a last control event, finishes what is in
flight, closes the database and exits 0 within `drain_s` and a little. A failed write or fsync ends
the process with status 1: its supervisor restarts it, and recovery finds what was acknowledged.
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
from tailrace.engine.core import Engine
from tailrace.engine.memory import MemoryStore
from tailrace.server.doors import Doors
from tailrace.server.logs import configure_logs
from tailrace.server.service import Service, clock_ms
from tailrace.server.settings import AccessNotConfigured, Settings, SettingsError
from tailrace.server.tls import Tls, TlsInvalid
from tailrace.server.wire import WireServer

__all__ = ["check_exposure", "open_store", "serve"]

log = structlog.get_logger("tailrace")

# The syncer's thread wants the GIL back after an fsync; the default of 5 ms would be the commit's
# latency whenever the loop is busy.
_SWITCH_INTERVAL_S: Final = 0.0005
_GC_THRESHOLD: Final = 50_000
# RocksDB's tables and logs, snapshots, backups.
_FILES_BESIDES: Final = 1024
# Answers to what was pending when storage failed still go out before the process ends.
_FAILURE_GRACE_S: Final = 1.0


def open_store(settings: Settings) -> Store:
    """
    The store that the settings ask for.

    Raises:
        EngineError: It cannot be opened.
    """
    if settings.engine == "memory":
        return MemoryStore()
    # Imported here: the memory engine must not need RocksDB's library.
    from tailrace.engine.rocks import RocksStore

    return RocksStore(settings.data_dir, settings.disk_reserve_bytes)


def serve(settings: Settings) -> int:
    """
    Run a server until it is told to stop; returns the exit status.

    Raises:
        SettingsError, AccessFileInvalid, LimitsFileInvalid, TlsInvalid, EngineError: It cannot.
    """
    configure_logs(settings)
    sys.setswitchinterval(_SWITCH_INTERVAL_S)
    check_exposure(settings)
    settings = _within_files(settings)
    doors = Doors(settings)
    if settings.tls_key and not settings.tls_cert:
        raise SettingsError("--tls-key needs --tls-cert: without it nothing would be encrypted")
    tls = Tls(settings.tls_cert, settings.tls_key) if settings.tls_cert else None
    store = open_store(settings)
    # What exists now lives as long as the process: the collector need not look at it again.
    gc.collect()
    gc.freeze()
    # A turn of the loop makes thousands of short-lived objects, and cycles are rare.
    gc.set_threshold(_GC_THRESHOLD)
    return uvloop.run(_serve(settings, store, doors, tls))


def _within_files(settings: Settings) -> Settings:
    """
    The settings with as many connections as there may be open files, beside those of the store.

    Each connection is one, and the usual limit of a shell is a thousand: it is raised as far as it
    may be. A store that cannot open its next log would end the server.
    """
    wanted = settings.connections_max + _FILES_BESIDES
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return settings
    allowed = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    resource.setrlimit(resource.RLIMIT_NOFILE, (allowed, hard))
    if allowed >= wanted:
        return settings
    connections_max = max(1, allowed - min(_FILES_BESIDES, allowed // 2))
    log.warning(
        "fewer connections than --connections-max: raise the limit of open files, ulimit -n",
        open_files_max=allowed,
        connections_max=connections_max,
    )
    return replace(settings, connections_max=connections_max)


def check_exposure(settings: Settings) -> None:
    """
    §10.1: nobody serves a network without access control by accident.

    Raises:
        AccessNotConfigured: The address is not loopback, and `--insecure` is not set.
    """
    if settings.access or settings.insecure or _is_loopback(settings.host):
        return
    raise AccessNotConfigured(settings.host)


def _is_loopback(host: str) -> bool:
    """Whether only this machine can reach an address, or all that a name stands for."""
    try:
        found = socket.getaddrinfo(host or None, 0, flags=socket.AI_PASSIVE)
    except OSError:
        # It may stand for something by the time that it is listened on.
        return False
    return all(ip_address(item[4][0]).is_loopback for item in found)


def _reload(service: Service, tls: Tls | None) -> None:
    """SIGHUP: what can change without dropping a connection."""
    service.reload()
    if tls is not None:
        try:
            tls.reload()
        except TlsInvalid as error:
            log.error("the certificate is as it was: mend it, then reload", error=str(error))
    log.info("reloaded")


async def _serve(settings: Settings, store: Store, doors: Doors, tls: Tls | None) -> int:
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    failed = False

    def on_failure(error: BaseException) -> None:
        nonlocal failed
        failed = True
        log.error("storage failed, stopping", error=str(error))
        stop.set()

    engine = Engine(store, clock=clock_ms, sliding=settings.ttl == "sliding", on_failure=on_failure)
    service = Service(engine, settings, doors)
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
        log.warning("the end of the log was damaged and is cut off", bytes=store.cut_bytes)
    await stop.wait()
    log.info("stopping")
    cut = await server.drain(_FAILURE_GRACE_S if failed else settings.drain_s)
    await service.close()
    await engine.close()
    log.info("stopped", connections_cut=cut)
    return 1 if failed else 0
