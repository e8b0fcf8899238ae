"""JSON to typed columns: values are converted or rescued, and none is lost."""

import json
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql.types import (
    ArrayType,
    BooleanType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from tailrace.spark.options import OptionInvalid
from tailrace.spark.source.typed_columns import EACH_MAX, TypedColumns


def parse(values: list[bytes], **types: DataType) -> list[dict[str, Any]]:
    fields = [StructField(name, kind) for name, kind in types.items()]
    schema = StructType(
        [*fields, StructField("_message", LongType()), StructField("_rescued", StringType())]
    )
    count = len(values)
    batch = pa.record_batch(
        {
            "range": pa.array([0] * count, pa.int32()),
            "message": pa.array(range(count), pa.int64()),
            "value": pa.array(values, pa.binary()),
        }
    )
    rows: list[dict[str, Any]] = TypedColumns(schema, "b").rows(batch, pa.array(["s"])).to_pylist()
    return rows


FIELDS = {
    "number": st.integers(-(2**70), 2**70) | st.floats(allow_nan=False, allow_infinity=False),
    "text": st.text(),
    "flag": st.booleans(),
    "list": st.lists(st.integers(), max_size=3),
    "object": st.dictionaries(st.text(max_size=3), st.integers(), max_size=3),
    "null": st.none(),
}
OBJECTS = st.dictionaries(
    st.sampled_from(["id", "name", "score", "ok", "more"]), st.one_of(*FIELDS.values()), max_size=5
)


def is_fitting(name: str, value: Any) -> bool:
    if value is None:
        return name != "more"
    match name:
        case "id":
            return type(value) is int and -(2**63) <= value < 2**63
        case "name":
            return type(value) is str
        case "score":
            return type(value) is float or (
                type(value) is int and abs(value) < 1e300 and int(float(value)) == value
            )
        case "ok":
            return type(value) is bool
    return False


@settings(max_examples=150, deadline=None)
@given(st.lists(OBJECTS, min_size=1, max_size=2 * EACH_MAX + 10), st.sampled_from([None, 2]))
def test_every_field_is_in_its_column_or_rescued(
    objects: list[dict[str, Any]], indent: int | None
) -> None:
    values = [json.dumps(item, indent=indent).encode() for item in objects]
    rows = parse(values, id=LongType(), name=StringType(), score=DoubleType(), ok=BooleanType())
    assert [row["_message"] for row in rows] == list(range(len(objects)))
    for item, row in zip(objects, rows, strict=True):
        rescued = json.loads(row["_rescued"]) if row["_rescued"] else {}
        for name, value in item.items():
            if is_fitting(name, value):
                assert name not in rescued
                assert row[name] == (
                    float(value) if name == "score" and value is not None else value
                )
            elif type(value) is float and value.is_integer() and name == "id":
                # Whether 1.0 is a whole number is a matter of taste.
                assert name in rescued or row[name] == value
            else:
                assert rescued[name] == value
        assert rescued.keys() <= item.keys()


def test_values_that_are_not_objects_are_rescued() -> None:
    values = [b"5", b"[1]", b'"a"', b"null", b'{"id":1}', b"no json", b"", b'{"id":1}\n{"id":2}']
    rows = parse(values, id=LongType())
    assert [row["id"] for row in rows] == [None, None, None, None, 1, None, None, None]
    assert [row["_rescued"] for row in rows] == [
        "5", "[1]", '"a"', "null", None, "no json", "", '{"id":1}\n{"id":2}',
    ]  # fmt: skip


def test_two_objects_in_one_message_do_not_shift_the_others() -> None:
    """As many rows as messages are not enough: two in one and none in another add up as well."""
    rows = parse([b'{"id":1}{"id":2}', b"  ", b'{"id":3}'], id=LongType())
    assert [row["id"] for row in rows] == [None, None, 3]


def test_rescued_text_is_as_it_was() -> None:
    [row] = parse([b'{"id":12345678901234567890,"x":1e2,"y":"\\u00e4"}'], id=LongType())
    assert row["_rescued"] == '{"id":12345678901234567890,"x":1e2,"y":"\\u00e4"}'


def test_text_that_is_not_utf8_is_rescued_with_replacements() -> None:
    [row] = parse([b'{"a":"\xff","b":1}'], b=LongType())
    assert (row["b"], row["_rescued"]) == (None, '{"a":"\ufffd","b":1}')


@pytest.mark.parametrize(
    ("kind", "fits", "misfits"),
    [
        (DoubleType(), b"9007199254740994", b"9007199254740993"),
        (DoubleType(), b"1e300", b'"1"'),
        (IntegerType(), b"2147483647", b"2147483648"),
        (DecimalType(5, 2), b"123.45", b"1234.5"),
        (DecimalType(5, 2), b"1.5", b"1.234"),
        (DecimalType(5, 2), b"-1", b'"1.5"'),
        (FloatType(), b"16777216", b"16777217"),
        (FloatType(), b"0.1", b"1e300"),
        (DateType(), b'"2026-01-31"', b'"2026-02-31"'),
        (TimestampType(), b'"2026-01-31T12:00:00Z"', b'"noon"'),
        (TimestampType(), b'"2026-01-31T12:00:00.123456Z"', b'"2026-01-31T12:00:00.1234567Z"'),
        (ArrayType(LongType()), b"[1,null,2]", b'[1,"2"]'),
        (MapType(StringType(), LongType()), b'{"a":1}', b'{"a":"1"}'),
        (StructType([StructField("a", LongType())]), b'{"a":1}', b'{"a":1,"b":2}'),
        (StructType([StructField("a", LongType())]), b"{}", b"[1]"),
    ],
)
def test_other_types_are_converted_or_rescued(kind: DataType, fits: bytes, misfits: bytes) -> None:
    rows = parse([b'{"x":' + fits + b"}", b'{"x":' + misfits + b"}"], x=kind)
    assert rows[0]["x"] is not None and rows[0]["_rescued"] is None
    assert rows[1]["x"] is None and json.loads(rows[1]["_rescued"]) == {"x": json.loads(misfits)}


def test_rescued_must_be_text() -> None:
    with pytest.raises(OptionInvalid, match="_rescued"):
        TypedColumns(StructType([StructField("_rescued", LongType())]), None)


def test_a_snapshot_has_its_own_row() -> None:
    """Beside typed columns too: else its row would look like a message of nulls."""
    fields = [StructField("id", LongType()), StructField("_is_snapshot", BooleanType())]
    columns = TypedColumns(StructType(fields), "b")
    message = pa.record_batch(
        {"range": pa.array([0], pa.int32()), "value": pa.array([b'{"id":1}'], pa.binary())}
    )
    assert columns.rows(message, pa.array(["s"])).to_pylist() == [{"id": 1, "_is_snapshot": False}]
    snapshot = columns.row("s", value=b"{}", is_snapshot=True)
    assert snapshot.to_pylist() == [{"id": None, "_is_snapshot": True}]


def test_half_of_a_surrogate_pair_goes_to_rescued() -> None:
    """A column of strings is UTF-8, which cannot represent it; no other row is affected."""
    half = b'{"id":2,"name":"\\ud83d"}'
    values = [b'{"id":1,"name":"a"}', half, b'{"id":3,"name":"b"}']
    rows = parse(values, id=LongType(), name=StringType())
    assert [(row["id"], row["name"]) for row in rows] == [(1, "a"), (None, None), (3, "b")]
    assert [row["_rescued"] for row in rows] == [None, half.decode(), None]
