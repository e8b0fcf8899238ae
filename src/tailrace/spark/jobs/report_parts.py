"""
Measuring messages where they are read: what a task of a report hands on.

A part says of one stream how many messages and bytes have something in common, and the least and
the most of it:

    kind       number                  name       least, most
    size       its bin                            of the sizes in it
    period     its start in ms                    of the commit times in it
    producer   its bucket              its id
    key                                the key    the number of its last message; bytes are of that
    keyless                                       messages that have no key
    error      the status              why

Parts add up by (place, kind, number, name), in whatever pieces they come; only a `key` keeps the
bytes of its last message. So a stream may be read by several tasks.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tailrace.spark.folds.keys import KeyReader, parse_path
from tailrace.spark.rows import RangeError

__all__ = ["PARTS", "PARTS_SQL", "Meter", "columns_for", "keys_at"]

PARTS: Final = pa.schema(
    [
        ("place", pa.int32()),
        ("kind", pa.string()),
        ("number", pa.int64()),
        ("name", pa.string()),
        ("messages", pa.int64()),
        ("bytes", pa.int64()),
        ("least", pa.int64()),
        ("most", pa.int64()),
    ]
)
PARTS_SQL: Final = (
    "place int, kind string, number long, name string, "
    "messages long, bytes long, least long, most long"
)
KeysOf = Callable[[Sequence[bytes]], list[str | None]]
_ROWS_MAX: Final = 1 << 16
# A bin is as wide as 1/128 of the sizes in it: percentiles are good to less than one per cent.
_MANTISSA_BITS: Final = 8


def columns_for(key: str | None) -> list[str]:
    """What is read of each message: its content only where there is a key to look for."""
    wanted = ["range", "size", "time", "producer"]
    return wanted if key is None else [*wanted, "message", "value"]


class Meter:
    """
    Adds up what one task reads.

    `places` and `buckets` say which stream each range is of; `keys_of` finds the keys of messages.
    """

    def __init__(
        self,
        places: Sequence[int],
        buckets: Sequence[int],
        period_ms: int,
        keys_of: KeysOf | None = None,
    ) -> None:
        self._places = np.asarray(places, dtype=np.int32)
        self._buckets = np.asarray(buckets, dtype=np.int64)
        self._period_ms = period_ms
        self._keys_of = keys_of
        self._parts: list[pa.Table] = []
        self._rows = 0

    def take(self, found: pa.RecordBatch | RangeError) -> Iterator[pa.RecordBatch]:
        """Measure some messages; what no longer fits is handed out."""
        if isinstance(found, RangeError):
            self._keep(self._failed(found))
        elif found.num_rows:
            for part in self._measured(found):
                self._keep(part)
        if self._rows > _ROWS_MAX:
            self._parts = [_added(self._parts)]
            self._rows = self._parts[0].num_rows
            if self._rows > _ROWS_MAX // 2:
                yield from self.finish()

    def finish(self) -> Iterator[pa.RecordBatch]:
        """All that was not handed out yet."""
        if self._parts:
            yield from _added(self._parts).to_batches()
        self._parts, self._rows = [], 0

    def _keep(self, part: pa.Table) -> None:
        self._parts.append(part)
        self._rows += part.num_rows

    def _failed(self, error: RangeError) -> pa.Table:
        place = int(self._places[error.index])
        why = f"{error.code}: {error.detail}" if error.detail else error.code
        row = (place, "error", error.status, why, 0, 0, 0, 0)
        return pa.table([[value] for value in row], schema=PARTS)

    def _measured(self, batch: pa.RecordBatch) -> Iterator[pa.Table]:
        ranges = batch["range"].to_numpy(zero_copy_only=False)
        places = self._places[ranges]
        sizes = batch["size"].to_numpy(zero_copy_only=False).astype(np.int64)
        times = batch["time"].cast(pa.int64()).to_numpy(zero_copy_only=False)
        periods = times // self._period_ms * self._period_ms
        yield _counted("size", places, sizes, number=_bins(sizes), of=sizes)
        yield _counted("period", places, sizes, number=periods, of=times)
        producers = batch["producer"]
        if producers.null_count < len(producers):
            known = pc.is_valid(producers).to_numpy(zero_copy_only=False)
            names = producers.filter(pc.is_valid(producers))
            buckets = self._buckets[ranges[known]]
            yield _counted("producer", places[known], sizes[known], number=buckets, name=names)
        if self._keys_of is not None:
            yield from self._keyed(batch, places, sizes)

    def _keyed(self, batch: pa.RecordBatch, places: Any, sizes: Any) -> Iterator[pa.Table]:
        numbers = batch["message"].to_numpy(zero_copy_only=False)
        assert self._keys_of is not None
        keys = pa.array(self._keys_of(batch["value"].to_pylist()), pa.string())
        known = pc.is_valid(keys)
        if keys.null_count:
            without = pc.is_null(keys).to_numpy(zero_copy_only=False)
            yield _counted("keyless", places[without], sizes[without])
        rows = pa.table({"place": places, "name": keys, "most": numbers, "bytes": sizes})
        rows = rows.filter(known)
        # In order of the stream: the last of each key is the last row that has it.
        last = rows.group_by(["place", "name"], use_threads=False).aggregate(
            [("most", "last"), ("bytes", "last"), ("most", "count")]
        )
        yield _table(
            "key",
            place=last["place"],
            name=last["name"],
            messages=last["most_count"],
            bytes=last["bytes_last"],
            most=last["most_last"],
        )


def _bins(sizes: Any) -> Any:
    """The smallest size that is counted together with each."""
    bits = np.frexp(sizes.astype(np.float64))[1]
    shift = np.maximum(bits - _MANTISSA_BITS, 0)
    return sizes >> shift << shift


def _counted(
    kind: str, places: Any, sizes: Any, *, number: Any = None, name: Any = None, of: Any = None
) -> pa.Table:
    """Messages and bytes by what they have in common."""
    given = {"number": number, "name": name}
    keyed = {column: values for column, values in given.items() if values is not None}
    of = sizes if of is None else of
    rows = pa.table({"place": places, **keyed, "bytes": sizes, "of": of})
    found = rows.group_by(["place", *keyed], use_threads=False).aggregate(
        [("bytes", "count"), ("bytes", "sum"), ("of", "min"), ("of", "max")]
    )
    return _table(
        kind,
        place=found["place"],
        messages=found["bytes_count"],
        bytes=found["bytes_sum"],
        least=found["of_min"],
        most=found["of_max"],
        **{column: found[column] for column in keyed},
    )


def _table(kind: str, **columns: Any) -> pa.Table:
    """Parts of one kind; columns that it has nothing in are zero, or null."""
    length = len(columns["place"])
    made = []
    for column in PARTS:
        if column.name == "kind":
            made.append(pa.repeat(kind, length))
        elif column.name in columns:
            made.append(columns[column.name].cast(column.type))
        elif column.name == "name":
            made.append(pa.nulls(length, column.type))
        else:
            made.append(pa.repeat(pa.scalar(0, column.type), length))
    return pa.table(made, schema=PARTS)


def _added(parts: Iterable[pa.Table]) -> pa.Table:
    """The same, each once; of a key the last counts."""
    rows = pa.concat_tables(parts)
    is_key = pc.equal(rows["kind"], "key")
    keys = rows.filter(is_key).sort_by("most")
    others = rows.filter(pc.invert(is_key))
    by = ["place", "kind", "number", "name"]
    added = others.group_by(by, use_threads=False).aggregate(
        [("messages", "sum"), ("bytes", "sum"), ("least", "min"), ("most", "max")]
    )
    last = keys.group_by(by, use_threads=False).aggregate(
        [("messages", "sum"), ("bytes", "last"), ("least", "min"), ("most", "last")]
    )
    return pa.concat_tables([_named(added), _named(last)])


def _named(found: pa.Table) -> pa.Table:
    """The columns of an aggregate under their names, in their order."""
    names = {name.rpartition("_")[0] or name: name for name in found.column_names}
    return pa.table([found[names[each.name]].cast(each.type) for each in PARTS], schema=PARTS)


def keys_at(path: str) -> KeysOf:
    """
    Finds the keys at a path, as `/id` or `order.id`, of JSON messages; None where there is none.

    Raises:
        FoldInvalid: It is no path.
    """
    reader = KeyReader(parse_path("report", path))

    def one(value: bytes) -> str | None:
        try:
            return repr(reader.one(value))
        except ValueError:
            return None

    def all_(values: Sequence[bytes]) -> list[str | None]:
        try:
            return list(map(repr, reader.all(values)))
        except (msgspec.DecodeError, ValueError):
            return list(map(one, values))

    return all_
