"""
Appends, snapshots and short lives in buckets until the server dies, and what must be left then.

A request that got a response has one fate; one that was cut off has two, and the first look after a
restart decides which. A snapshot that was not sent to its end has only one: it is not there.

Run as a module, this is a server that reclaims what is superseded almost at once, so that what a
test does falls in the middle of it: `python -m tests.crash.snapshot_load serve …`.
"""

from __future__ import annotations

import json
import threading
import time
from collections import Counter
from dataclasses import dataclass
from enum import Enum
from itertools import accumulate
from pathlib import Path

from tailrace.cli import main
from tailrace.engine import sweep
from tests.crash.extensions_model import Place, parse_token, token
from tests.crash.load import Client, Link, Load, Profile, ServerGone
from tests.crash.model import Fate
from tests.support.chance import derive
from tests.support.http import Connection, ProtocolError, Response, format_request
from tests.support.multipart import split_strictly
from tests.support.payloads import digest, pack, pack_json, unpack_all
from tests.support.reading import JSON, OCTETS, problem_code
from tests.support.server import BaseServerProcess, ServerProcess
from tests.support.together import HANG_S, wait_until

INLINE_BYTES_MAX = 256 << 10
CHUNK_BYTES = 1 << 20
CRC_BYTES = 4
PIECE_BYTES = 64 << 10
FEEDS = 6
BRIEFS = 3
SNAPSHOT = "application/x-state"

Key = tuple[str, int, int]
"""A message: its writer, which append of that writer's, and its place in that append."""


class SweepingServer(ServerProcess):
    """A server process whose background work never rests."""

    def _command(self, port: int) -> list[str]:
        command = super()._command(port)
        at = command.index("tailrace")
        return [*command[:at], "tests.crash.snapshot_load", *command[at + 1 :]]


class Moment(Enum):
    """When the server is killed."""

    ANY = "at any moment"
    HALF = "when half of a large snapshot is sent"
    SENT = "when all of it is sent"
    ANSWERED = "when it was acknowledged"


@dataclass(slots=True)
class Sent:
    """A message that was sent."""

    digest: bytes
    count: int
    fate: Fate = Fate.UNKNOWN
    # How many messages of the stream lie before it, once that is known.
    number: int | None = None


@dataclass(slots=True)
class Publication:
    """A snapshot that was sent, perhaps in part."""

    place: Place
    digest: bytes
    size: int
    whole: bool = False
    fate: Fate = Fate.UNKNOWN


@dataclass(frozen=True, slots=True)
class Boot:
    """A bootstrap, taken apart."""

    at: Place | None
    snapshot: bytes
    messages: list[bytes]
    content_type: str
    tail: Place


def read_bootstrap(response: Response) -> Boot | None:
    """What a bootstrap tells, which must be complete; None for 404."""
    if response.status == 404:
        return None
    assert response.status == 200, response
    first, *rest = split_strictly(response.headers["content-type"], response.body)
    at = response.headers["stream-snapshot-offset"]
    tail = parse_token(response.headers["stream-next-offset"])
    assert tail is not None
    place = parse_token(at)
    assert (place is None) == (at == "-1")
    assert first.content_type == (OCTETS if place is None else SNAPSHOT)
    kinds = {part.content_type for part in rest}
    assert len(kinds) <= 1, kinds
    messages = [part.body for part in rest]
    start = place or (0, 0)
    content_type = kinds.pop() if kinds else ""
    assert tail[0] == start[0] + len(messages), "messages are missing"
    assert tail[1] == start[1] + sum(map(len, messages)) + (
        len(messages) if content_type == JSON else 0
    )
    return Boot(place, first.body, messages, content_type, tail)


class Feed:
    """A stream that several clients append to and publish snapshots of."""

    def __init__(self, path: str, *, json: bool) -> None:
        self.path = path
        self.json = json
        self.lock = threading.Lock()
        self.sent: dict[Key, Sent] = {}
        # Boundaries from responses.
        self.places: set[Place] = {(0, 0)}
        self.publications: list[Publication] = []
        # What a reader was shown.
        self.seen_at: Place = (-1, -1)
        self.seen_tail: Place = (0, 0)

    @property
    def newest(self) -> Publication | None:
        """The last snapshot that was acknowledged: no later one can lie before it."""
        stored = [item for item in self.publications if item.fate is Fate.STORED]
        return max(stored, key=lambda item: item.place, default=None)

    def saw(self, boot: Boot) -> None:
        """A reader got this: it is what was sent, and must not be taken back."""
        with self.lock:
            self.seen_tail = max(self.seen_tail, boot.tail)
            self.seen_at = max(self.seen_at, boot.at or (-1, -1))
            self._visible(boot)

    def _visible(self, boot: Boot) -> Publication | None:
        if boot.at is None:
            return None
        mark = digest(boot.snapshot)
        found = [item for item in self.publications if (item.place, item.digest) == (boot.at, mark)]
        assert len(found) == 1, f"{self.path}: the snapshot at {boot.at} is not what was sent"
        assert found[0].whole, f"{self.path}: a snapshot is there that was not sent to its end"
        assert found[0].fate is not Fate.ABSENT, f"{self.path}: a snapshot came back"
        return found[0]

    def check(self, boot: Boot | None) -> Publication | None:
        """Compare what is there after a crash with what must be; the snapshot that is visible."""
        assert boot is not None, f"{self.path} is lost"
        newest, visible = self.newest, self._visible(boot)
        at = boot.at or (-1, -1)
        if newest is not None:
            assert at >= newest.place, f"{self.path}: acknowledged at {newest.place}, found {at}"
            if at == newest.place:
                assert visible is newest, f"{self.path}: another one than was acknowledged"
        assert at >= self.seen_at, f"{self.path}: seen at {self.seen_at}, found {at}"
        assert boot.tail >= self.seen_tail, f"{self.path}: was longer"
        if visible is not None:
            visible.fate = Fate.STORED
        for item in self.publications:
            if item.fate is Fate.UNKNOWN:
                item.fate = Fate.ABSENT
        self._check_messages(boot)
        return visible

    def _check_messages(self, boot: Boot) -> None:
        start = boot.at or (0, 0)
        keys = [self.key_of(raw) for raw in boot.messages]
        assert len(set(keys)) == len(keys), f"{self.path}: a message is there twice"
        last: dict[str, tuple[int, int]] = {}
        for number, (key, raw) in enumerate(zip(keys, boot.messages, strict=True), start[0]):
            sent = self.sent.get(key)
            assert sent is not None, f"{self.path}: {key} was never sent"
            assert sent.digest == digest(raw), f"{self.path}: {key} is not what was sent"
            assert sent.fate is not Fate.ABSENT, f"{self.path}: {key} was not stored before"
            assert sent.number in (None, number), f"{self.path}: {key} was at {sent.number}"
            writer, *place = key
            before = last.get(writer, (-1, -1))
            assert tuple(place) > before, f"{self.path}: {key} came after {before}"
            last[writer] = (place[0], place[1])
            sent.fate, sent.number = Fate.STORED, number
        self._check_batches(keys)
        present = set(keys)
        for key, sent in self.sent.items():
            if key in present:
                continue
            if sent.fate is Fate.STORED:
                assert sent.number is not None
                assert sent.number < start[0], f"{self.path}: {key} was acknowledged and is lost"
            # If it is covered by the snapshot or was never stored: it must not appear any more.
            sent.fate = Fate.ABSENT
        sizes = [len(raw) + self.json for raw in boot.messages]
        ends = accumulate(sizes, initial=start[1])
        self.places.update(enumerate(ends, start[0]))

    def _check_batches(self, keys: list[Key]) -> None:
        """An append is there as a whole, as far as it is retained."""
        for at, (writer, seq, index) in enumerate(keys):
            assert index == 0 or at == 0 or keys[at - 1] == (writer, seq, index - 1), self.path
            if index + 1 < self.sent[writer, seq, index].count:
                assert keys[at + 1 : at + 2] == [(writer, seq, index + 1)], self.path

    def key_of(self, raw: bytes) -> Key:
        if self.json:
            writer, seq, index, _ = json.loads(raw)["of"].split(" ")
            return writer, int(seq), int(index)
        (message,) = unpack_all(raw)
        return message.writer, message.seq, 0


@dataclass(frozen=True, slots=True)
class Life:
    """What a stream with one owner is at one moment; None stands for one that does not exist."""

    snapshot: bytes | None = None
    messages: tuple[bytes, ...] = ()


class Brief:
    """A stream that one client creates, fills, covers with snapshots and deletes, all the time."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.now: Life | None = None
        # What it is if the request under way was carried out; the same if there is none.
        self.then: Life | None = None
        self.tail: Place = (0, 0)

    def settle(self) -> None:
        self.now = self.then

    def check(self, boot: Boot | None) -> None:
        found: Life | None = None
        if boot is not None:
            snapshot = None if boot.at is None else digest(boot.snapshot)
            found = Life(snapshot, tuple(map(digest, boot.messages)))
            self.tail = boot.tail
        assert found in (self.now, self.then), (self.path, found, self.now, self.then)
        self.now = self.then = found


class Uploads(Link):
    """A connection that sends snapshots piece by piece, and says how far it came."""

    def __init__(self, load: SnapshotLoad, url: str) -> None:
        super().__init__(load, url)
        self._snapshots = load

    def publish(
        self, path: str, content: bytes, sent: Publication, *, vanish: bool = False
    ) -> Response | None:
        """PUT a snapshot; None if the client vanishes in the middle of it."""
        large = len(content) > INLINE_BYTES_MAX
        phase = "sending"
        target = f"{path}/snapshot/{token(sent.place)}"
        headers = {"Content-Type": SNAPSHOT, "Content-Length": str(len(content))}
        try:
            connection = self._connection or Connection.to(self._url, HANG_S)
            self._connection = connection
            connection.send(format_request("PUT", target, headers, host=connection.host_header))
            for at in range(0, len(content), PIECE_BYTES):
                if at + PIECE_BYTES >= len(content):
                    if vanish:
                        self._connection = None
                        connection.reset()
                        return None
                    self._whole(sent)
                connection.send(content[at : at + PIECE_BYTES])
                half = len(content) // 2 <= at < len(content) - PIECE_BYTES
                if large and half and self._snapshots.reached(Moment.HALF):
                    # It was killed meanwhile: the rest cannot be sent.
                    raise ConnectionResetError
            self._whole(sent)
            phase = "sent"
            if large:
                self._snapshots.reached(Moment.SENT)
            response = connection.read_response("PUT")
        except (OSError, ProtocolError) as error:
            if large and self._snapshots.ending.is_set():
                self._snapshots.interrupted[phase] += 1
            self._lost(error)
        if response.status == 204:
            self._snapshots.reached(Moment.ANSWERED)
        if response.headers.get("connection") == "close":
            self.close()
        return response

    def _whole(self, sent: Publication) -> None:
        """From here on it may be stored, whatever becomes of the connection."""
        sent.whole = True
        if sent.size > INLINE_BYTES_MAX:
            self._snapshots.whole.add(sent.digest)


class SnapshotClient(Client):
    """One client of the load."""

    def __init__(self, load: SnapshotLoad, number: int) -> None:
        super().__init__(load, number)
        self._snapshots = load
        self._seq = 0

    def work(self, url: str) -> None:
        link = Uploads(self._snapshots, url)
        try:
            while True:
                self.step(link)
        except ServerGone:
            pass
        finally:
            link.close()

    def step(self, link: Uploads) -> None:
        raise NotImplementedError

    def bytes_of(self, low: int, high: int) -> bytes:
        return self._chance.randbytes(self._chance.randrange(low, high))


class Writer(SnapshotClient):
    """Appends to any of the shared streams."""

    def step(self, link: Uploads) -> None:
        feed = self._chance.choice(self._snapshots.feeds)
        self._seq += 1
        if feed.json:
            fillers = [self.bytes_of(0, 300) for _ in range(self._chance.randint(1, 6))]
            messages = pack_json(self._name, self._seq, fillers)
            body, kind = b"[" + b",".join(messages) + b"]", JSON
        else:
            messages = [pack(self._name, self._seq, self.bytes_of(0, 3000))]
            body, kind = messages[0], OCTETS
        items = {
            (self._name, self._seq, index): Sent(digest(raw), len(messages))
            for index, raw in enumerate(messages)
        }
        with feed.lock:
            feed.sent.update(items)
        response = link.request("POST", feed.path, {"Content-Type": kind}, body)
        assert response.status == 204, response
        end = parse_token(response.headers["stream-next-offset"])
        assert end is not None
        with feed.lock:
            message, byte = end
            for raw, item in zip(reversed(messages), reversed(items.values()), strict=True):
                feed.places.add((message, byte))
                message, byte = message - 1, byte - len(raw) - feed.json
                item.fate, item.number = Fate.STORED, message


class Publisher(SnapshotClient):
    """Publishes snapshots of some streams; of others' too, unless its own are large."""

    def __init__(self, load: SnapshotLoad, number: int, feeds: list[Feed], *, large: bool) -> None:
        super().__init__(load, number)
        self._feeds = feeds
        self._large = large

    def step(self, link: Uploads) -> None:
        chance = self._chance
        feed = chance.choice(self._feeds)
        with feed.lock:
            newest = feed.newest
            later = [place for place in feed.places if newest is None or place > newest.place]
            older = [place for place in feed.places if newest is not None and place < newest.place]
        if older and not self._large and chance.random() < 0.1:
            place = chance.choice(older)
        elif later:
            place = sorted(later)[-1 if chance.random() < 0.5 else chance.randrange(len(later))]
        else:
            # Nothing new: ask for something, if only to notice when the server is gone.
            assert link.request("GET", f"{feed.path}?offset=now").status == 200
            return
        content = self._content()
        sent = Publication(place, digest(content), len(content))
        with feed.lock:
            feed.publications.append(sent)
        vanish = len(content) > 2 * PIECE_BYTES and chance.random() < 0.1
        response = link.publish(feed.path, content, sent, vanish=vanish)
        if response is None:
            sent.fate = Fate.ABSENT
        elif response.status == 204:
            sent.fate = Fate.STORED
        else:
            # Another client was there first.
            assert problem_code(response) in ("snapshot-conflict", "offset-gone"), response
            assert not self._large, response
            sent.fate = Fate.ABSENT

    def _content(self) -> bytes:
        if self._large:
            return self.bytes_of(1 << 20, 4 << 20)
        if self._chance.random() < 0.5:
            return self.bytes_of(1, 100_000)
        return self.bytes_of(280 << 10, 320 << 10)


class Mayfly(SnapshotClient):
    """Streams that are deleted soon, in a bucket that is deleted when it is empty."""

    def __init__(self, load: SnapshotLoad, number: int) -> None:
        super().__init__(load, number)
        self.bucket = f"mayfly-{number}"
        self.bucket_now = self.bucket_then = False
        self.briefs = [Brief(f"/{self.bucket}/{at}") for at in range(BRIEFS)]

    def step(self, link: Uploads) -> None:
        if not self.bucket_now:
            self.bucket_then = True
            assert link.request("PUT", f"/{self.bucket}").status == 201
            self.bucket_now = True
            return
        if all(brief.now is None for brief in self.briefs) and self._chance.random() < 0.3:
            self.bucket_then = False
            assert link.request("DELETE", f"/{self.bucket}").status == 204
            self.bucket_now = False
            return
        brief = self._chance.choice(self.briefs)
        life = brief.now
        if life is None:
            brief.then, brief.tail = Life(), (0, 0)
            response = link.request("PUT", brief.path, {"Content-Type": OCTETS})
            assert response.status == 201, response
        elif self._chance.random() < 0.3:
            brief.then = None
            response = link.request("DELETE", brief.path)
            assert response.status == 204, response
        elif life.messages and self._chance.random() < 0.5:
            self._cover(link, brief)
        else:
            raw = self.bytes_of(1, 500)
            brief.then = Life(life.snapshot, (*life.messages, digest(raw)))
            response = link.request("POST", brief.path, {"Content-Type": OCTETS}, raw)
            assert response.status == 204, response
            brief.tail = parse_token(response.headers["stream-next-offset"]) or (0, 0)
        brief.settle()

    def _cover(self, link: Uploads, brief: Brief) -> None:
        content = self.bytes_of(1, 2000) if self._chance.random() < 0.4 else self.bytes_of(
            280 << 10, 1 << 20
        )  # fmt: skip
        brief.then = Life(digest(content))
        sent = Publication(brief.tail, digest(content), len(content))
        response = link.publish(brief.path, content, sent)
        assert response is not None
        assert response.status == 204, response


class SnapshotLoad(Load):
    """Clients, the streams that they use, and the check of what is left after a crash."""

    def __init__(self, seed: str) -> None:
        super().__init__(seed, Profile(clients=0, slots=0, owned_per_client=0))
        self.feeds = [Feed(f"/feeds-{n % 2}/{n}", json=n % 2 == 1) for n in range(FEEDS)]
        shared = self.feeds[2:]
        self.mayflies = [Mayfly(self, 10), Mayfly(self, 11)]
        self.clients = [
            *(Writer(self, number) for number in range(3)),
            Publisher(self, 3, self.feeds[:1], large=True),
            Publisher(self, 4, self.feeds[1:2], large=True),
            Publisher(self, 5, shared, large=False),
            Publisher(self, 6, shared, large=False),
            *self.mayflies,
        ]
        # What large uploads were about when the server was killed.
        self.interrupted: Counter[str] = Counter()
        self.kills_amid_uploads = 0
        # Of all large snapshots that were sent to their end, and how many files of such were
        # found after a crash that nothing shows any more.
        self.whole: set[bytes] = set()
        self.leftovers = 0
        self._awaited = Moment.ANY
        self._reached = threading.Event()
        self._killed = threading.Event()

    def prepare(self, url: str) -> None:
        """Make the shared streams, before anything can go wrong."""
        with Connection.to(url, HANG_S) as connection:
            for bucket in ("/feeds-0", "/feeds-1"):
                assert connection.request("PUT", bucket).status == 201
            for feed in self.feeds:
                headers = {"Content-Type": JSON if feed.json else OCTETS}
                assert connection.request("PUT", feed.path, headers).status == 201

    def reached(self, moment: Moment) -> bool:
        """A client is at a moment at which the server may be killed; whether it was."""
        if moment is not self._awaited:
            return False
        self._reached.set()
        # Half of it stays half of it: the client waits, or the rest would be sent in no time.
        return moment is Moment.HALF and self._killed.wait(HANG_S)

    def kill_at(self, server: BaseServerProcess, moment: Moment, seconds: float) -> None:
        """Let all clients work for a while, and kill the server at the next such moment."""
        before = self.interrupted.total()

        def end() -> None:
            time.sleep(seconds)
            self._reached.clear()
            self._killed.clear()
            self._awaited = moment
            if moment is not Moment.ANY:
                assert self._reached.wait(HANG_S), f"it never came: {moment.value}"
            self.ending.set()
            server.kill()
            self._awaited = Moment.ANY
            self._killed.set()

        self.run(server.url, end)
        self.kills_amid_uploads += self.interrupted.total() > before

    def _watch(self, url: str) -> None:
        """A reader: what a bootstrap showed it must not be taken back by a crash."""
        chance = derive(self.seed, "watch", self.checks)
        link = Link(self, url)
        try:
            while True:
                feed = chance.choice(self.feeds)
                boot = read_bootstrap(link.request("GET", f"{feed.path}/bootstrap"))
                assert boot is not None
                feed.saw(boot)
        except ServerGone:
            pass
        finally:
            link.close()

    # -- after a crash -----------------------------------------------------------------------

    def check(self, url: str) -> None:
        """Read everything and compare it with what must be there."""
        with Connection.to(url, HANG_S) as connection:
            for feed in self.feeds:
                boot = self._bootstrap(connection, feed.path)
                feed.check(boot)
                assert boot is not None
                self._check_reads(connection, feed, boot)
            for mayfly in self.mayflies:
                self._check_mayfly(connection, mayfly)
            for bucket, names in self._buckets().items():
                self._check_bucket(connection, bucket, names)
        self.checks += 1

    def _bootstrap(self, connection: Connection, path: str) -> Boot | None:
        return read_bootstrap(connection.request("GET", f"{path}/bootstrap"))

    def _check_reads(self, connection: Connection, feed: Feed, boot: Boot) -> None:
        """The other ways to read a stream tell the same."""
        head = connection.request("HEAD", feed.path)
        assert head.headers["stream-next-offset"] == token(boot.tail)
        assert head.headers.get("stream-snapshot-offset") == (boot.at and token(boot.at))
        first = connection.request("GET", f"{feed.path}?offset=-1")
        latest = connection.request("GET", f"{feed.path}/snapshot")
        if boot.at is None:
            assert (first.status, latest.status) == (200, 404)
        else:
            earliest = token(boot.at)
            older = max((place for place in feed.places if place < boot.at), default=None)
            gone = [first]
            if older is not None:
                gone.append(connection.request("GET", f"{feed.path}?offset={token(older)}"))
            for response in gone:
                assert (response.status, problem_code(response)) == (410, "offset-gone"), response
                assert response.headers["stream-earliest-offset"] == earliest
            assert latest.status == 307
            assert latest.headers["location"].endswith(f"{feed.path}/snapshot/{earliest}")
            snapshot = connection.request("GET", f"{feed.path}/snapshot/{earliest}")
            assert snapshot.status == 200
            assert snapshot.headers["content-type"] == SNAPSHOT
            assert snapshot.body == boot.snapshot, f"{feed.path}: two snapshots at {earliest}"
        self._check_catch_up(connection, feed, boot)

    def _check_catch_up(self, connection: Connection, feed: Feed, boot: Boot) -> None:
        offset, body = token(boot.at or (0, 0)), b""
        while True:
            response = connection.request("GET", f"{feed.path}?offset={offset}")
            assert response.status == 200, response
            body += response.body[1:-1] + b"," if feed.json else response.body
            offset = response.headers["stream-next-offset"]
            if response.headers.get("stream-up-to-date") == "true":
                break
        joined = b"".join(raw + b"," for raw in boot.messages) if feed.json else b"".join(
            boot.messages
        )  # fmt: skip
        assert offset == token(boot.tail)
        assert body.removesuffix(b",") == joined.removesuffix(b","), f"{feed.path}: read otherwise"

    def _check_mayfly(self, connection: Connection, mayfly: Mayfly) -> None:
        exists = connection.request("GET", f"/{mayfly.bucket}").status == 200
        assert exists in (mayfly.bucket_now, mayfly.bucket_then)
        mayfly.bucket_now = mayfly.bucket_then = exists
        for brief in mayfly.briefs:
            brief.check(self._bootstrap(connection, brief.path))
            assert exists or brief.now is None, f"{brief.path} is in no bucket"

    def _buckets(self) -> dict[str, list[str]]:
        """Each bucket that exists, with the ids of its streams."""
        found: dict[str, list[str]] = {}
        for feed in self.feeds:
            _, bucket, name = feed.path.split("/")
            found.setdefault(bucket, []).append(name)
        for mayfly in self.mayflies:
            if mayfly.bucket_now:
                living = [brief for brief in mayfly.briefs if brief.now is not None]
                found[mayfly.bucket] = [brief.path.rpartition("/")[2] for brief in living]
        return found

    def _check_bucket(self, connection: Connection, bucket: str, names: list[str]) -> None:
        content = json.loads(connection.request("GET", f"/{bucket}").body)
        listing = json.loads(connection.request("GET", f"/{bucket}/streams").body)
        listed = [item["stream_id"] for item in listing["streams"]]
        assert listed == sorted(names), (bucket, listed, names)
        assert content["streams"] == len(listed), (bucket, content, listed)

    # -- files -------------------------------------------------------------------------------

    def check_files(self, data_dir: Path) -> None:
        """Nothing is left of what was cut off, and all that is visible has its bytes."""
        files, visible = set(stored_files(data_dir)), self._visible_files()
        assert files <= self.whole, "a part of a snapshot was left"
        assert visible <= files, "a snapshot is visible that has no file"
        self.leftovers += len(files - visible)

    def wait_for_files(self, data_dir: Path) -> None:
        """What is superseded or deleted goes away, and what is visible stays."""
        visible = sorted(self._visible_files())
        files = data_dir / "snapshots"
        wait_until(lambda: len(list(files.glob("*"))) <= len(visible))
        assert sorted(stored_files(data_dir)) == visible

    def _visible_files(self) -> set[bytes]:
        """The snapshots that have a file of their own, by digest."""
        newest = [feed.newest for feed in self.feeds]
        marks = {item.digest for item in newest if item is not None}
        lives = [brief.now for mayfly in self.mayflies for brief in mayfly.briefs]
        marks |= {life.snapshot for life in lives if life is not None and life.snapshot is not None}
        return marks & self.whole


def stored_files(data_dir: Path) -> list[bytes]:
    """The digest of each snapshot that has a file, without the checksums at its end."""
    found = []
    for path in (data_dir / "snapshots").glob("*"):
        try:
            raw = path.read_bytes()
        except FileNotFoundError:
            # Reclaimed just now.
            continue
        chunks = -(-len(raw) // (CHUNK_BYTES + CRC_BYTES))
        found.append(digest(raw[: len(raw) - chunks * CRC_BYTES]))
    return found


if __name__ == "__main__":
    vars(sweep)["SWEEP_S"] = 0.01
    main()
