"""A mixed load of several clients, which stops when the server dies."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from tests.crash.model import UNORDERED, Fate, Life, Log, Owned, Sent
from tests.support.chance import derive
from tests.support.http import Connection, ProtocolError, Response
from tests.support.payloads import digest, pack, pack_json, size_of_message
from tests.support.reading import JSON, OCTETS, read_all
from tests.support.server import REPO_ROOT, BaseServerProcess
from tests.support.together import HANG_S

CLOSE = {"Stream-Closed": "true"}


class ServerGone(Exception):
    """The connection broke because the server ended."""


@dataclass(frozen=True)
class Profile:
    """What kind of load: weights of what a client does next."""

    append: int = 30
    batch: int = 20
    produce: int = 35
    own: int = 30
    close: int = 2
    cut: int = 2
    clients: int = 6
    slots: int = 28
    owned_per_client: int = 2


class Slot:
    """A place for shared streams: when one is closed, the next life begins under a new name."""

    def __init__(self, name: str, *, json: bool) -> None:
        self._name = name
        self._json = json
        self.lives: list[Log] = []
        self._lock = threading.Lock()
        self.next(None)

    @property
    def log(self) -> Log:
        return self.lives[-1]

    def next(self, after: Log | None) -> None:
        with self._lock:
            if not self.lives or self.lives[-1] is after:
                path = f"/v1/stream/crash/{self._name}/{len(self.lives)}"
                self.lives.append(Log(path, json=self._json))


@dataclass
class Producer:
    """An idempotent producer of one client for one stream (§5.2.1)."""

    id: str
    epoch: int = 0
    seq: int = 0
    # The message under way, until it is acknowledged.
    pending: tuple[int, bytes, bool] | None = None


class Load:
    """Clients, the streams that they use, and the check of what is left after a crash."""

    def __init__(self, seed: str, profile: Profile) -> None:
        self.seed = seed
        self.profile = profile
        self.slots = [Slot(str(n), json=n % 3 == 0) for n in range(profile.slots)]
        self.ending = threading.Event()
        self.clients = [Client(self, number) for number in range(profile.clients)]
        self.checks = 0

    def run_until_killed(self, server: BaseServerProcess, seconds: float) -> None:
        """Let all clients work, and kill the server in the middle of it."""

        def kill() -> None:
            time.sleep(seconds)
            self.ending.set()
            server.kill()

        self.run(server.url, kill)

    def run(self, url: str, end: Callable[[], None]) -> None:
        """
        Let all clients work until `end` has ended the server.

        It sets `ending` first: before that a client takes a broken connection for a fault.
        """
        self.ending.clear()
        with ThreadPoolExecutor(len(self.clients) + 1) as pool:
            futures = [pool.submit(client.work, url) for client in self.clients]
            futures.append(pool.submit(self._watch, url))
            try:
                end()
            finally:
                self.ending.set()
            for future in futures:
                future.result()

    def check(self, url: str) -> None:
        """Read every stream and compare it with the model."""
        with Connection.to(url, HANG_S) as connection:
            for slot in self.slots:
                for log in slot.lives:
                    log.check(read_all(connection, log.path))
            for client in self.clients:
                for owned in client.owned:
                    owned.check(read_all(connection, owned.path))
        self.checks += 1

    @property
    def stored(self) -> int:
        """How many messages are known to be stored: a load that did nothing proves nothing."""
        logs = [log for slot in self.slots for log in slot.lives]
        return sum(sent.fate is Fate.STORED for log in logs for sent in log.sent.values())

    def _watch(self, url: str) -> None:
        """A reader: what it was shown must not be taken back by a crash."""
        chance = derive(self.seed, "watch", self.checks)
        link = Link(self, url)
        try:
            while True:
                log = chance.choice(self.slots).log
                response = link.request("GET", f"{log.path}?offset=now")
                if response.status == 404:
                    continue
                end = int(response.headers["stream-next-offset"].partition("_")[2])
                log.seen_end = max(log.seen_end, end)
                log.seen_closed |= response.headers.get("stream-closed") == "true"
        except ServerGone:
            pass
        finally:
            link.close()


class Link:
    """A connection that tells a killed server from a broken one."""

    def __init__(self, load: Load, url: str) -> None:
        self._load = load
        self._url = url
        self._connection: Connection | None = None

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def send(
        self, method: str, path: str, headers: dict[str, str], body: bytes | None
    ) -> Connection:
        try:
            if self._connection is None:
                self._connection = Connection.to(self._url, HANG_S)
            self._connection.send_request(method, path, headers, body)
        except (OSError, ProtocolError) as error:
            self._lost(error)
        return self._connection

    def request(
        self, method: str, path: str, headers: dict[str, str] | None = None, body: bytes = b""
    ) -> Response:
        sent = None if method in ("GET", "DELETE") else body
        connection = self.send(method, path, headers or {}, sent)
        try:
            return connection.read_response(method)
        except (OSError, ProtocolError) as error:
            self._lost(error)

    def request_and_vanish(self, path: str, headers: dict[str, str], body: bytes) -> None:
        """Send, and break the connection before the response can come."""
        connection = self.send("POST", path, headers, body)
        self._connection = None
        connection.reset()

    def _lost(self, error: Exception) -> NoReturn:
        self.close()
        if isinstance(error, TimeoutError):
            raise AssertionError("the server did not respond") from error
        if not self._load.ending.is_set():
            raise AssertionError("the connection broke while the server lived") from error
        raise ServerGone from error


class Client:
    """One client: one thread, one connection, one request at a time."""

    def __init__(self, load: Load, number: int) -> None:
        self._load = load
        self._name = f"c{number}"
        self._chance = derive(load.seed, "client", number)
        self._created: set[Log] = set()
        self._seqs: dict[tuple[Log, str], int] = {}
        self._producers: dict[Log, Producer] = {}
        self.owned = [
            Owned(f"/v1/stream/owned/{self._name}/{n}", json=n % 2 == 1)
            for n in range(load.profile.owned_per_client)
        ]

    def work(self, url: str) -> None:
        """Go on until the server is killed."""
        link = Link(self._load, url)
        profile = self._load.profile
        actions = {
            self._append: profile.append,
            self._batch: profile.batch,
            self._produce: profile.produce,
            self._own: profile.own,
            self._close: profile.close,
            self._cut: profile.cut,
        }
        try:
            for log in list(self._producers):
                self._finish_pending(link, log)
            while True:
                action = self._chance.choices(list(actions), list(actions.values()))[0]
                action(link)
        except ServerGone:
            pass
        finally:
            link.close()

    # -- shared streams ----------------------------------------------------------------------

    def _slot(self, link: Link, *, json: bool) -> tuple[Slot, Log]:
        """A shared stream that exists."""
        slots = self._load.slots
        slot = self._chance.choice([slot for slot in slots if slot.log.json is json])
        log = slot.log
        if log not in self._created:
            with log.lock:
                if log.created is Fate.ABSENT:
                    log.created = Fate.UNKNOWN
            response = link.request("PUT", log.path, {"Content-Type": JSON if json else OCTETS})
            # 409: another client has closed it already.
            assert response.status in (200, 201, 409), response
            log.created = Fate.STORED
            self._created.add(log)
        return slot, log

    def _message(self, log: Log, writer: str, *, closes: bool = False) -> tuple[Sent, bytes]:
        """Make the next message of a writer, and note that it is sent."""
        seq = self._seqs[log, writer] = self._seqs.get((log, writer), -1) + 1
        body, mark = self._body(log.json, writer, seq)
        sent = Sent(mark, closes)
        with log.lock:
            log.sent[writer, seq] = sent
        return sent, body

    def _body(self, json: bool, writer: str, seq: int) -> tuple[bytes, bytes]:
        chance = self._chance
        if json:
            fillers = [chance.randbytes(chance.randrange(200)) for _ in range(chance.randint(1, 9))]
            elements = pack_json(writer, seq, fillers)
            return b"[" + b",".join(elements) + b"]", digest(b"\n".join(elements))
        body = pack(writer, seq, chance.randbytes(size_of_message(chance)))
        return body, digest(body)

    def _responded(self, slot: Slot, log: Log, sent: Sent, response: Response) -> None:
        """An append that got a response: stored, or refused because the stream was closed."""
        sent.retried = False
        if response.status in (200, 204):
            assert sent.fate is not Fate.ABSENT, (log.path, response)
            sent.fate = Fate.STORED
            return
        assert response.status == 409, (log.path, response)
        assert response.headers["stream-closed"] == "true", (log.path, response)
        slot.next(log)

    def _post(self, link: Link, *, json: bool, closes: bool = False) -> None:
        slot, log = self._slot(link, json=json)
        sent, body = self._message(log, self._name, closes=closes)
        headers = {"Content-Type": JSON if json else OCTETS, **(CLOSE if closes else {})}
        response = link.request("POST", log.path, headers, body)
        self._responded(slot, log, sent, response)
        if response.status == 409:
            sent.fate = Fate.ABSENT
        else:
            sent.end = int(response.headers["stream-next-offset"].partition("_")[2])
        if closes:
            slot.next(log)

    def _append(self, link: Link) -> None:
        self._post(link, json=False)

    def _batch(self, link: Link) -> None:
        self._post(link, json=True)

    def _close(self, link: Link) -> None:
        json = self._chance.random() < 0.5
        match self._chance.randrange(3):
            case 0:
                slot, log = self._slot(link, json=json)
                with log.lock:
                    if log.closed is Fate.ABSENT:
                        log.closed = Fate.UNKNOWN
                response = link.request("POST", log.path, CLOSE)
                assert response.status == 204, response
                assert response.headers["stream-closed"] == "true", response
                log.closed = Fate.STORED
                slot.next(log)
            case 1:
                self._post(link, json=json, closes=True)
            case _:
                slot, log = self._slot(link, json=json)
                self._produce_once(link, slot, log, closes=True)

    def _cut(self, link: Link) -> None:
        """A client that vanishes: its message may be stored, whole, at any later moment."""
        _, log = self._slot(link, json=False)
        _, body = self._message(log, self._name + UNORDERED)
        link.request_and_vanish(log.path, {"Content-Type": OCTETS}, body)

    # -- producers ---------------------------------------------------------------------------

    def _produce(self, link: Link) -> None:
        slot, log = self._slot(link, json=self._chance.random() < 0.3)
        self._produce_once(link, slot, log, closes=False)

    def _produce_once(self, link: Link, slot: Slot, log: Log, *, closes: bool) -> None:
        producer = self._producers.setdefault(log, Producer(f"p-{self._name}"))
        writer = producer.id
        sent, body = self._message(log, writer, closes=closes)
        sent.retried = True
        producer.pending = (self._seqs[log, writer], body, closes)
        if self._chance.random() < 0.03:
            producer.epoch, producer.seq = producer.epoch + 1, 0
        if self._chance.random() < 0.05:
            # The first try breaks off; whether it was stored, the next one must not store it again.
            link.request_and_vanish(log.path, self._claim(log, producer, closes), body)
        self._finish_pending(link, log)
        if self._chance.random() < 0.05 and not closes:
            # A needless retry: an acknowledged message is a duplicate for ever.
            again = link.request("POST", log.path, self._claim(log, producer, closes, -1), body)
            closed = again.headers.get("stream-closed") == "true"
            assert again.status == 204 or (again.status == 409 and closed), again
        if closes:
            slot.next(log)

    def _finish_pending(self, link: Link, log: Log) -> None:
        """Send a producer's message until it gets a response."""
        producer = self._producers[log]
        if producer.pending is None:
            return
        place, body, closes = producer.pending
        sent = log.sent[producer.id, place]
        response = link.request("POST", log.path, self._claim(log, producer, closes), body)
        slot = next(slot for slot in self._load.slots if log in slot.lives)
        stored = sent.fate is Fate.STORED
        if response.status == 200:
            assert not stored, f"{log.path}: {producer} was stored and is taken as new"
            sent.end = int(response.headers["stream-next-offset"].partition("_")[2])
        if response.status == 409:
            # Closed by another: the headers tell whether this message came before that.
            known = (response.headers.get("producer-epoch"), response.headers.get("producer-seq"))
            has_it = known[0] == str(producer.epoch) and int(known[1] or -1) >= producer.seq
            assert has_it or not stored, (log.path, producer, response)
            sent.fate = Fate.STORED if has_it else Fate.ABSENT
        self._responded(slot, log, sent, response)
        producer.pending = None
        producer.seq += 1

    def _claim(self, log: Log, producer: Producer, closes: bool, shift: int = 0) -> dict[str, str]:
        return {
            "Content-Type": JSON if log.json else OCTETS,
            "Producer-Id": producer.id,
            "Producer-Epoch": str(producer.epoch),
            "Producer-Seq": str(producer.seq + shift),
            **(CLOSE if closes else {}),
        }

    # -- streams of this client alone --------------------------------------------------------

    def _own(self, link: Link) -> None:
        """One step of a stream that no other client uses."""
        owned = self._chance.choice(self.owned)
        life = owned.now
        if life is None:
            self._create_owned(link, owned)
        elif self._chance.random() < 0.1:
            owned.then = None
            response = link.request("DELETE", owned.path)
            assert response.status == 204, response
            owned.settle(done=True)
        elif life.closed:
            response = link.request("POST", owned.path, {"Content-Type": OCTETS}, b"too late")
            assert response.status == 409, response
            owned.then = None
            assert link.request("DELETE", owned.path).status == 204
            owned.settle(done=True)
        else:
            self._append_owned(link, owned, life)

    def _create_owned(self, link: Link, owned: Owned) -> None:
        chance = self._chance
        headers = {"Content-Type": JSON if owned.json else OCTETS}
        assert link.request("POST", owned.path, headers, b"1").status == 404
        body, contents = b"", ()  # type: tuple[bytes, tuple[bytes, ...]]
        if chance.random() < 0.5:
            body, mark = self._owned_body(owned)
            contents = (mark,)
        closed = chance.random() < 0.1
        owned.then = Life(contents, closed)
        response = link.request("PUT", owned.path, {**headers, **(CLOSE if closed else {})}, body)
        assert response.status == 201, response
        owned.settle(done=True)

    def _append_owned(self, link: Link, owned: Owned, life: Life) -> None:
        chance = self._chance
        closes = chance.random() < 0.08
        headers = {"Content-Type": JSON if owned.json else OCTETS, **(CLOSE if closes else {})}
        body, contents = b"", life.contents
        if not closes or chance.random() < 0.5:
            body, mark = self._owned_body(owned)
            contents = (*contents, mark)
        owned.then = Life(contents, closes)
        response = link.request("POST", owned.path, headers, body)
        assert response.status == 204, response
        owned.settle(done=True)

    def _owned_body(self, owned: Owned) -> tuple[bytes, bytes]:
        owned.seq += 1
        return self._body(owned.json, f"o-{self._name}", owned.seq)


def kill_while_starting(data_dir: Path, delay_s: float) -> None:
    """Start a server on this data and kill it before, while or after it recovers."""
    command = [sys.executable, "-m", "tailrace", "serve", "--port", "0"]
    process = subprocess.Popen(
        [*command, "--data-dir", str(data_dir)],
        cwd=REPO_ROOT,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    time.sleep(delay_s)
    process.kill()
    process.wait()
