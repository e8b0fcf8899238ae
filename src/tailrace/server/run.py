"""
A server's life: open, serve, drain, close.

SIGTERM or SIGINT stops accepting, ends live readers with a last control event, finishes what is in
flight, closes the database and exits 0 within `drain_s` and a little. A failed write or fsync ends
the process with status 1: its supervisor restarts it, and recovery finds what was acknowledged.
"""

import asyncio
import gc
import signal
import sys
from typing import Final

import structlog
import uvloop

from tailrace import __version__
from tailrace.engine.base import Store
from tailrace.engine.core import Engine
from tailrace.engine.memory import MemoryStore
from tailrace.server.logs import configure_logs
from tailrace.server.service import Service, clock_ms
from tailrace.server.settings import Settings
from tailrace.server.wire import WireServer

__all__ = ["open_store", "serve"]

log = structlog.get_logger("tailrace")

# The syncer's thread wants the GIL back after an fsync; the default of 5 ms would be the commit's
# latency whenever the loop is busy.
_SWITCH_INTERVAL_S: Final = 0.0005
_GC_THRESHOLD: Final = 50_000
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
    """Run a server until it is told to stop; returns the exit status."""
    configure_logs(settings)
    sys.setswitchinterval(_SWITCH_INTERVAL_S)
    store = open_store(settings)
    # What exists now lives as long as the process: the collector need not look at it again.
    gc.collect()
    gc.freeze()
    # A turn of the loop makes thousands of short-lived objects, and cycles are rare.
    gc.set_threshold(_GC_THRESHOLD)
    return uvloop.run(_serve(settings, store))


async def _serve(settings: Settings, store: Store) -> int:
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    failed = False

    def on_failure(error: BaseException) -> None:
        nonlocal failed
        failed = True
        log.error("storage failed, stopping", error=str(error))
        stop.set()

    engine = Engine(store, clock=clock_ms, sliding=settings.ttl == "sliding", on_failure=on_failure)
    service = Service(engine, settings)
    server = WireServer(service, settings)
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
    host = f"[{settings.host}]" if ":" in settings.host else settings.host
    log.info(
        "listening",
        url=f"http://{host}:{port}",
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
