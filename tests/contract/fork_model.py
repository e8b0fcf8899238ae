"""A naive model of forks: a fork is a copy of messages, and every number is counted anew."""

from dataclasses import dataclass, field

from tailrace.protocol.offset import Offset

__all__ = ["ForkModel", "ModelStream"]


@dataclass(eq=False)
class ModelStream:
    """A stream that exists, perhaps only for its forks."""

    json: bool
    messages: list[bytes] = field(default_factory=list)
    """As stored, from the beginning on; what is no longer retained is still here."""
    records: list[int] = field(default_factory=list)
    """The number of messages of each append that the stream can see."""
    source: "ModelStream | None" = None
    at: int = 0
    sub: int = 0
    begins: int = 0
    """The number of the first message of its own."""
    earliest: int = 0
    snapshot: bytes | None = None
    own_snapshot: bool = False
    held: int = 0
    deleted: bool = False
    expires_at: int | None = None
    ttl_s: int | None = None

    def offset(self, count: int) -> Offset:
        return Offset(count, sum(map(len, self.messages[:count])))

    @property
    def tail(self) -> Offset:
        return self.offset(len(self.messages))

    def own_bytes(self, until: int) -> int:
        return sum(map(len, self.messages[max(self.earliest, self.begins) : until]))

    @property
    def bytes(self) -> int:
        snapshot = len(self.snapshot or b"") if self.own_snapshot else 0
        return self.own_bytes(len(self.messages)) + snapshot + self.held

    def record_at(self, count: int) -> int:
        """How many messages follow a boundary in the append that contains them."""
        end = 0
        for size in self.records:
            end += size
            if end > count:
                return end - count
        return 0


class ForkModel:
    """The streams of one bucket. Methods return what a client learns, in one word."""

    def __init__(self) -> None:
        self.streams: dict[bytes, ModelStream] = {}

    def forks(self, stream: ModelStream) -> int:
        return sum(other.source is stream for other in self.streams.values())

    def visible(self, key: bytes) -> ModelStream | None:
        stream = self.streams.get(key)
        return None if stream is None or stream.deleted else stream

    def expire(self, now: int) -> None:
        """Everything that has expired is deleted, one after the other."""
        for key, stream in list(self.streams.items()):
            if not stream.deleted and stream.expires_at is not None and now >= stream.expires_at:
                self.delete(key)

    def create(self, key: bytes, *, json: bool, ttl_s: int | None, now: int) -> str:
        if (stream := self.streams.get(key)) is not None:
            if stream.deleted:
                return "stream-held"
            same = stream.source is None and (stream.json, stream.ttl_s) == (json, ttl_s)
            return "existed" if same else "stream-exists"
        until = None if ttl_s is None else now + ttl_s * 1000
        self.streams[key] = ModelStream(json, ttl_s=ttl_s, expires_at=until)
        return "created"

    def append(self, key: bytes, messages: list[bytes]) -> str:
        stream = self.streams.get(key)
        if stream is None:
            return "stream-not-found"
        if stream.deleted:
            return "stream-gone"
        stream.messages += messages
        stream.records.append(len(messages))
        return "appended"

    def fork(self, key: bytes, source_key: bytes, at: int | None, sub: int, now: int) -> str:
        """`at` is a message number; `sub` counts messages or bytes."""
        source = self.streams.get(source_key)
        if (stream := self.streams.get(key)) is not None:
            if stream.deleted:
                return "stream-held"
            same = source is not None and stream.source is source and stream.sub == sub
            return "existed" if same and at in (None, stream.at) else "stream-exists"
        if source is None:
            return "fork-source-not-found"
        if source.deleted:
            return "fork-source-gone"
        count = at = len(source.messages) if at is None else at
        if count < source.earliest:
            return "offset-gone"
        piece = b""
        if sub:
            follows = source.record_at(count)
            if source.json:
                if sub > follows:
                    return "fork-sub-offset-beyond"
                count += sub
            else:
                message = source.messages[count] if follows else b""
                if sub > len(message):
                    return "fork-sub-offset-beyond"
                if sub == len(message):
                    count += 1
                else:
                    piece = message[:sub]
        records, seen = [], 0
        for size in source.records:
            if seen < count:
                records.append(min(size, count - seen))
            seen += size
        fork = ModelStream(
            source.json,
            source.messages[:count],
            records,
            source=source,
            at=at,
            sub=sub,
            begins=count,
            earliest=source.earliest,
            snapshot=source.snapshot,
            ttl_s=source.ttl_s,
            expires_at=None if source.ttl_s is None else now + source.ttl_s * 1000,
        )
        self.streams[key] = fork
        if piece:
            self.append(key, [piece])
        return "created"

    def delete(self, key: bytes) -> str:
        stream = self.streams.get(key)
        if stream is None:
            return "stream-not-found"
        if stream.deleted:
            return "stream-gone"
        stream.deleted = True
        self._remove_unneeded()
        return "deleted"

    def _remove_unneeded(self) -> None:
        while unneeded := [
            key for key, stream in self.streams.items() if stream.deleted and not self.forks(stream)
        ]:
            for key in unneeded:
                del self.streams[key]
        for stream in self.streams.values():
            if not self.forks(stream):
                stream.held = 0

    def publish(self, key: bytes, at: int, content: bytes) -> str:
        stream = self.streams[key]
        if at < stream.earliest:
            return "offset-gone"
        if stream.snapshot is not None and at == stream.earliest:
            return "existed" if content == stream.snapshot else "snapshot-conflict"
        if self.forks(stream):
            stream.held += stream.own_bytes(at)
            stream.held += len(stream.snapshot or b"") if stream.own_snapshot else 0
        stream.earliest = at
        stream.snapshot, stream.own_snapshot = content, True
        return "published"
