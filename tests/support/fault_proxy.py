"""
A proxy between a client and a real server that injects the faults of networks.

It cuts, delays, splits, reorders and repeats requests and responses, or responds itself, as its
plan says (see `fault_plan`), and counts what it did. It never changes the bytes that it passes on,
and parses them only to find the end of a request or a response.

While the server is down, some requests fail, and later ones wait until it is up. So a client's
retries do not run out however long a restart takes.
"""

from __future__ import annotations

import socket
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Self
from urllib.parse import urlsplit

from tests.support.fault_plan import Fault, Plan, PlannedFault, Request, parse_headers
from tests.support.fault_responses import Cut, inject, own_response
from tests.support.fault_wire import Wire
from tests.support.together import HANG_S

__all__ = ["FaultProxy"]

OUTAGE_FAILURES_MAX = 10
HOLD_S = 0.1
LOOK_AGAIN_S = 0.005


class FaultProxy:
    """
    Listens on a free port, `url`, in front of the server at `server_url`.

    `refuse_sse` is the status of every response to a request for an event stream. Without
    `patient`, every request fails while the server is down.
    """

    def __init__(
        self,
        server_url: str,
        plan: Plan | None = None,
        *,
        refuse_sse: int | None = None,
        patient: bool = True,
    ) -> None:
        parts = urlsplit(server_url)
        self._server = (parts.hostname or "127.0.0.1", parts.port or 80)
        self._plan = plan
        self._refuse_sse = refuse_sse
        self._patient = patient
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}{parts.path}"
        self.done: Counter[Fault] = Counter()
        """The number of times that each fault happened."""
        self.done_sse: Counter[Fault] = Counter()
        """The same for event streams alone."""
        self.own_responses: Counter[tuple[int, int | None]] = Counter()
        """Responses by the proxy itself: status and Retry-After."""
        self.exchanges = 0
        """Requests that the server responded to."""
        self._posts = 0
        self._outage_failures = 0
        self._changed = threading.Condition()
        self._closed = False
        self._wires: set[Wire] = set()
        self._threads: list[threading.Thread] = []

    def __enter__(self) -> Self:
        self._spawn(self._accept)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is not None:
            done = {fault.name: count for fault, count in self.done.items()}
            responses = dict(self.own_responses)
            error.add_note(f"the proxy: {self.exchanges} exchanges, {done}, {responses}")
        with self._changed:
            self._closed = True
            self._changed.notify_all()
            for wire in self._wires:
                wire.shutdown()
        # Closing alone does not wake up `accept`.
        self._listener.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join(HANG_S)
        self._listener.close()

    @contextmanager
    def calm(self) -> Iterator[None]:
        """Inject no faults into requests within the block."""
        plan, self._plan = self._plan, None
        try:
            yield
        finally:
            self._plan = plan

    # -- connections -------------------------------------------------------------------------

    def _accept(self) -> None:
        while True:
            try:
                accepted, _ = self._listener.accept()
            except OSError:
                return
            self._spawn(self._serve, accepted)

    def _spawn(self, target: Callable[..., None], *args: object) -> None:
        thread = threading.Thread(target=target, args=args, daemon=True)
        thread.start()
        # Appended after its parent, and once started: threads are joined in this order.
        self._threads.append(thread)

    def _open(self, connection: socket.socket) -> Wire:
        wire = Wire(connection)
        with self._changed:
            self._wires.add(wire)
            if self._closed:
                wire.shutdown()
        return wire

    def _close(self, wire: Wire) -> None:
        with self._changed:
            self._wires.discard(wire)
        wire.close()

    def _connect(self) -> Wire:
        """A new connection to the server; waits for the server after some failures."""
        end = time.monotonic() + HANG_S
        while True:
            try:
                connection = socket.create_connection(self._server, HANG_S)
            except OSError as error:
                with self._changed:
                    self._outage_failures += 1
                    enough = self._outage_failures > OUTAGE_FAILURES_MAX
                    if not (self._patient and enough) or self._closed or time.monotonic() > end:
                        raise Cut from error
                    self._changed.wait(LOOK_AGAIN_S)
                continue
            with self._changed:
                self._outage_failures = 0
            return self._open(connection)

    def _serve(self, accepted: socket.socket) -> None:
        """Serve one connection of a client until either side ends it."""
        client = self._open(accepted)
        try:
            while head := client.head():
                self._exchange(client, head)
        except Cut as cut:
            if cut.reset:
                client.reset_at_close()
        except (OSError, EOFError):
            pass
        finally:
            self._close(client)

    # -- exchanges ---------------------------------------------------------------------------

    def _exchange(self, client: Wire, head: bytes) -> None:
        request = Request.parse(head)
        if self._refuse_sse is not None and request.is_sse:
            self.own_responses[self._refuse_sse, None] += 1
            client.send(own_response(request, self._refuse_sse))
            return
        plan = self._plan
        planned = plan.draw(request) if plan else None
        if planned and planned.fault is Fault.CUT_REQUEST:
            self._cut_request(planned, client, head, request)
        whole = head + b"".join(client.body(request.headers))
        if planned and planned.fault is Fault.FAIL_BEFORE:
            self._note(planned)
            assert planned.status is not None
            client.send(own_response(request, planned.status, planned.retry_after_s))
            return
        if planned and planned.fault is Fault.HELD and self._others_pass():
            self._note(planned)
        self._forward(client, request, whole, planned)
        if request.method == "POST":
            with self._changed:
                self._posts += 1
                self._changed.notify_all()
        if planned and planned.fault is Fault.TWICE_LATE:
            self._spawn(self._repeat, planned, request, whole)
        if planned and planned.fault is Fault.HANG_UP and not planned.is_sse:
            self._note(planned)
            raise Cut

    def _forward(
        self, client: Wire, request: Request, whole: bytes, planned: PlannedFault | None
    ) -> None:
        """Deliver a request once or twice, and pass on one response."""
        servers = [self._connect()]
        try:
            servers[0].send(whole)
            if planned and planned.fault in (Fault.TWICE_FIRST, Fault.TWICE_SECOND):
                servers.append(self._connect())
                servers[1].send(whole)
                if planned.fault is Fault.TWICE_SECOND:
                    servers.reverse()
            response = self._response_pieces(servers[0], request, client)
            for piece in inject(planned, request, response, self._note) if planned else response:
                client.send(piece)
            for other in servers[1:]:
                b"".join(self._response_pieces(other, request, other))
                assert planned is not None
                self._note(planned)
        finally:
            for server in servers:
                self._close(server)

    def _response_pieces(self, server: Wire, request: Request, client: Wire) -> Iterator[bytes]:
        """The head of a response, and then its body as it arrives."""
        head = server.head(watched=client)
        if not head:
            raise EOFError
        with self._changed:
            self.exchanges += 1
        yield head
        first, *lines = head.decode("latin-1").rstrip("\r\n").split("\r\n")
        status = int(first.split(" ")[1])
        if request.method != "HEAD" and status not in (204, 304):
            headers = parse_headers(lines)
            yield from server.body(headers, watched=client)
            if not {"content-length", "transfer-encoding"} & headers.keys():
                raise Cut

    def _cut_request(
        self, planned: PlannedFault, client: Wire, head: bytes, request: Request
    ) -> None:
        """Deliver the first part of a request; half of the cuts are in its head."""
        size = len(head) + int(request.headers.get("content-length", 0))
        at = planned.rng.randrange(planned.rng.choice((len(head), size)))
        server = self._connect()
        try:
            server.send(head[:at])
            if at > len(head):
                server.send(client.exactly(at - len(head)))
            self._note(planned)
            reset = planned.rng.random() < 0.5
            if reset:
                server.reset_at_close()
        finally:
            self._close(server)
        raise Cut(reset)

    def _others_pass(self) -> bool:
        """Wait for a later request; returns whether one came."""
        with self._changed:
            before = self._posts
            return self._changed.wait_for(lambda: self._posts > before or self._closed, HOLD_S)

    def _repeat(self, planned: PlannedFault, request: Request, whole: bytes) -> None:
        """Deliver a request again, after later ones."""
        self._others_pass()
        try:
            server = self._connect()
        except Cut:
            return
        try:
            server.send(whole)
            b"".join(self._response_pieces(server, request, server))
            self._note(planned)
        except (Cut, OSError, EOFError):
            pass
        finally:
            self._close(server)

    def _note(self, planned: PlannedFault) -> None:
        with self._changed:
            self.done[planned.fault] += 1
            self.done_sse[planned.fault] += planned.is_sse
            if planned.status is not None:
                self.own_responses[planned.status, planned.retry_after_s] += 1
