"""
One attempt of a webhook over aiohttp, with every bound that a hostile receiver could exceed.

Imported when the first webhook is sent, because importing aiohttp takes a quarter of a second.
"""

import asyncio
import socket
import threading
from contextlib import suppress
from typing import Any, Final, NamedTuple

import aiohttp
import msgspec
from aiohttp.abc import AbstractResolver, ResolveResult
from yarl import URL

from tailrace import __version__
from tailrace.server.subscriptions.addresses import Networks, check_address, check_url
from tailrace.server.subscriptions.errors import WebhookUrlRejected
from tailrace.server.subscriptions.webhook_sender import ATTEMPTS_MAX

__all__ = ["ATTEMPT_S", "RESPONSE_BYTES_MAX", "WebhookClient", "WebhookResult"]

ATTEMPT_S: Final = 10.0
"""From resolving the name to the end of the response."""
RESPONSE_BYTES_MAX: Final = 64 << 10
_DNS_CACHE_S: Final = 10


class WebhookResult(NamedTuple):
    """How an attempt ended."""

    done: bool = False
    """The receiver is done with the wake."""
    error: str = ""
    """Why it failed, for the subscription's `last_error`; empty if the status is 2xx."""


class _CheckedResolver(AbstractResolver):
    """
    Resolves names, and refuses addresses that must not be reached.

    Each lookup has a thread of its own, and there is one at a time for each name. In an executor,
    names that resolve slowly would hold up the rest of the server, or its end.
    """

    def __init__(self, networks: Networks) -> None:
        self._networks = networks
        # A lookup may go on after the attempt that began it.
        self._room = asyncio.Semaphore(ATTEMPTS_MAX)
        self._lookups: dict[tuple[str, int], asyncio.Task[list[Any] | OSError]] = {}

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        key = (host, family)
        if key not in self._lookups:
            self._lookups[key] = asyncio.create_task(self._look_up(host, family))
            self._lookups[key].add_done_callback(lambda _: self._lookups.pop(key))
        found = await asyncio.shield(self._lookups[key])
        if isinstance(found, OSError):
            raise found
        results = []
        for kind, _, protocol, _, address in found:
            text = str(address[0])
            # All of them, not only the first: the connector tries the others as well.
            check_address(host, text, self._networks)
            results.append(
                ResolveResult(
                    hostname=host,
                    host=text,
                    port=port,
                    family=kind,
                    proto=protocol,
                    flags=socket.AI_NUMERICHOST | socket.AI_NUMERICSERV,
                )
            )
        return results

    async def _look_up(self, host: str, family: int) -> list[Any] | OSError:
        """What the system finds, or why it finds nothing."""
        loop = asyncio.get_running_loop()
        ended: asyncio.Future[list[Any] | OSError] = loop.create_future()

        def end(found: list[Any] | OSError) -> None:
            if not ended.done():
                ended.set_result(found)

        def look_up() -> None:
            found: list[Any] | OSError
            try:
                found = socket.getaddrinfo(
                    host, 0, family, socket.SOCK_STREAM, flags=socket.AI_ADDRCONFIG
                )
            except OSError as error:
                found = error
            except Exception as error:
                found = OSError(str(error))
            # The loop is closed if the server has stopped meanwhile.
            with suppress(RuntimeError):
                loop.call_soon_threadsafe(end, found)

        async with self._room:
            try:
                threading.Thread(target=look_up, name="tailrace-webhook-dns", daemon=True).start()
            except RuntimeError as error:
                # The system has no more threads.
                return OSError(str(error))
            return await ended

    async def close(self) -> None:
        """Nothing to close."""


class WebhookClient:
    """Sends webhooks; belongs to one event loop."""

    def __init__(self, networks: Networks) -> None:
        self._networks = networks
        connector = aiohttp.TCPConnector(
            resolver=_CheckedResolver(networks), limit=0, ttl_dns_cache=_DNS_CACHE_S
        )
        self._session = aiohttp.ClientSession(
            connector=connector,
            cookie_jar=aiohttp.DummyCookieJar(),
            # A small compressed body could be a very large one.
            auto_decompress=False,
            timeout=aiohttp.ClientTimeout(total=ATTEMPT_S),
            headers={"User-Agent": f"tailrace/{__version__}", "Accept-Encoding": "identity"},
        )

    async def post(self, url: str, body: bytes, headers: dict[str, str]) -> WebhookResult:
        """Send a webhook once."""
        try:
            target = URL(url, encoded=True)
            # As aiohttp reads the URL: for a literal address it does not ask the resolver.
            check_url(str(target), self._networks)
            async with (
                asyncio.timeout(ATTEMPT_S),
                self._session.post(
                    target,
                    data=body,
                    headers={"Content-Type": "application/json", **headers},
                    allow_redirects=False,
                ) as response,
            ):
                if not 200 <= response.status < 300:
                    return WebhookResult(error=f"the response has the status {response.status}")
                return WebhookResult(done=_is_done(await _read(response)))
        except WebhookUrlRejected as refusal:
            return WebhookResult(error=refusal.detail)
        except TimeoutError:
            return WebhookResult(error=f"no complete response within {ATTEMPT_S:.0f} s")
        except (aiohttp.ClientError, OSError, ValueError) as error:
            return WebhookResult(error=_reason(error))

    async def close(self) -> None:
        await self._session.close()


async def _read(response: aiohttp.ClientResponse) -> bytes:
    """The body, or nothing if it is larger than any that could say that the wake is done."""
    pieces: list[bytes] = []
    size = 0
    async for piece in response.content.iter_any():
        size += len(piece)
        if size > RESPONSE_BYTES_MAX:
            response.close()
            return b""
        pieces.append(piece)
    return b"".join(pieces)


def _is_done(body: bytes) -> bool:
    """Whether the body is `{"done": true}`; the rest of the lease is up to the receiver if not."""
    try:
        content: Any = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return False
    return isinstance(content, dict) and content.get("done") is True


def _reason(error: BaseException) -> str:
    """In words of ours: the texts of aiohttp are for its users."""
    match error:
        case aiohttp.ClientConnectorCertificateError():
            return "the certificate of the receiver is not valid"
        case aiohttp.ClientConnectorDNSError():
            return f"the name {error.host} cannot be resolved"
        case aiohttp.ClientConnectorError():
            return f"cannot connect: {error.os_error.strerror or error.os_error}"[:300]
        case aiohttp.ClientResponseError():
            return "the response is not HTTP"
    return f"the connection broke: {str(error) or type(error).__name__}"[:300]
