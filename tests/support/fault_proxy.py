"""
A proxy between a client and a real server, which does to connections what networks do.

It cuts, delays, crumbles, reorders, repeats and answers by itself, as its plan says (see
`fault_plan`), and counts what it did. What it passes on it never changes: bytes are parsed just
enough to know where a request or an answer ends.

While the server is down a few requests fail, and those after them wait until it is back. How long
a restart takes is then no matter of a client's patience.
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

from tests.support.fault_responses import Cut, disturbed, own_answer
from tests.support.fault_plan import Card, Fault, Plan, Request, parse_headers
from tests.support.fault_wire import Wire
from tests.support.together import HANG_S

__all__ = ["FaultProxy"]

OUTAGE_FAILURES_MAX = 10
HOLD_S = 0.1
LOOK_AGAIN_S = 0.005


class FaultProxy:
    """
    Listens on a free port of its own, `url`, in front of the server at `server_url`.

    `refuse_sse` is a status that answers every request for an event stream. Without `patient`,
    requests fail for as long as the server is down.
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
        """How often each fault happened."""
        self.done_sse: Counter[Fault] = Counter()
        """The same for event streams alone."""
        self.answers: Counter[tuple[int, int | None]] = Counter()
        """Statuses, each with its Retry-After, that the proxy answered by itself."""
        self.exchanges = 0
        """Requests that the server answered."""
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
            error.add_note(f"the proxy: {self.exchanges} exchanges, {done}, {dict(self.answers)}")
        with self._changed:
            self._closed = True
            self._changed.notify_all()
            for wire in self._wires:
                wire.shutdown()
        # Closing alone does not wake up who accepts.
        self._listener.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join(HANG_S)
        self._listener.close()

    @contextmanager
    def calm(self) -> Iterator[None]:
        """No faults for requests that come within the block."""
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
        # After who started it, and started: so they are joined in this order.
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
        """A new connection to the server; waits for it when enough requests have failed."""
        end = time.monotonic() + HANG_S
        while True:
            try:
                connection = socket.create_connection(self._server, HANG_S)
            except OSError as error:
                with self._changed:
                    self._outage_failures += 1
                    tired = self._outage_failures > OUTAGE_FAILURES_MAX
                    if not (self._patient and tired) or self._closed or time.monotonic() > end:
                        raise Cut from error
                    self._changed.wait(LOOK_AGAIN_S)
                continue
            with self._changed:
                self._outage_failures = 0
            return self._open(connection)

    def _serve(self, accepted: socket.socket) -> None:
        """One client's connection, exchange by exchange, until one of the two ends it."""
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
            self.answers[self._refuse_sse, None] += 1
            client.send(own_answer(request, self._refuse_sse))
            return
        plan = self._plan
        card = plan.draw(request) if plan else None
        if card and card.fault is Fault.CUT_REQUEST:
            self._cut_request(card, client, head, request)
        whole = head + b"".join(client.body(request.headers))
        if card and card.fault is Fault.FAIL_BEFORE:
            self._note(card)
            assert card.status is not None
            client.send(own_answer(request, card.status, card.retry_after_s))
            return
        if card and card.fault is Fault.HELD and self._others_pass():
            self._note(card)
        self._forward(client, request, whole, card)
        if request.method == "POST":
            with self._changed:
                self._posts += 1
                self._changed.notify_all()
        if card and card.fault is Fault.TWICE_LATE:
            self._spawn(self._repeat, card, request, whole)
        if card and card.fault is Fault.HANG_UP and not card.is_sse:
            self._note(card)
            raise Cut

    def _forward(self, client: Wire, request: Request, whole: bytes, card: Card | None) -> None:
        """Deliver a request, or two of it at once, and pass on one answer."""
        servers = [self._connect()]
        try:
            servers[0].send(whole)
            if card and card.fault in (Fault.TWICE_FIRST, Fault.TWICE_SECOND):
                servers.append(self._connect())
                servers[1].send(whole)
                if card.fault is Fault.TWICE_SECOND:
                    servers.reverse()
            answer = self._answer_pieces(servers[0], request, client)
            for piece in disturbed(card, request, answer, self._note) if card else answer:
                client.send(piece)
            for other in servers[1:]:
                b"".join(self._answer_pieces(other, request, other))
                assert card is not None
                self._note(card)
        finally:
            for server in servers:
                self._close(server)

    def _answer_pieces(self, server: Wire, request: Request, client: Wire) -> Iterator[bytes]:
        """The head of an answer, and then its body as it comes."""
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

    def _cut_request(self, card: Card, client: Wire, head: bytes, request: Request) -> None:
        """Deliver the beginning of a request; often the cut is in its head, short as that is."""
        size = len(head) + int(request.headers.get("content-length", 0))
        at = card.chance.randrange(card.chance.choice((len(head), size)))
        server = self._connect()
        try:
            server.send(head[:at])
            if at > len(head):
                server.send(client.exactly(at - len(head)))
            self._note(card)
            reset = card.chance.random() < 0.5
            if reset:
                server.reset_at_close()
        finally:
            self._close(server)
        raise Cut(reset)

    def _others_pass(self) -> bool:
        """Wait for requests that came later; whether there were any."""
        with self._changed:
            before = self._posts
            return self._changed.wait_for(lambda: self._posts > before or self._closed, HOLD_S)

    def _repeat(self, card: Card, request: Request, whole: bytes) -> None:
        """Deliver a request again, later and unasked for."""
        self._others_pass()
        try:
            server = self._connect()
        except Cut:
            return
        try:
            server.send(whole)
            b"".join(self._answer_pieces(server, request, server))
            self._note(card)
        except (Cut, OSError, EOFError):
            pass
        finally:
            self._close(server)

    def _note(self, card: Card) -> None:
        with self._changed:
            self.done[card.fault] += 1
            self.done_sse[card.fault] += card.is_sse
            if card.status is not None:
                self.answers[card.status, card.retry_after_s] += 1
