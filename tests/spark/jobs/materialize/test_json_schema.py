"""Schemas of JSON: they grow, their names do not collide, and nothing of a message is lost."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace.spark.jobs.materialize.json_rows import JsonRows, why_not_object
from tailrace.spark.jobs.materialize.json_schema import (
    EMPTY,
    METADATA_COLUMNS,
    Field,
    ListOf,
    Struct,
    Type,
    dump_type,
    infer,
    keep_longs,
    load_struct,
    spark_type,
    widen,
)
from tailrace.spark.tables import SchemaConflict
from tailrace.spark.tables.schemas import NO_COLUMNS, grown, longs_to_doubles, retyped

NAMES = st.sampled_from(
    ["a", "A", "b", "", ".", "a.b", "a_b", "_stream", "_Stream", "_rescued", "ß", "a b", "x`y"]
)
NUMBERS = st.sampled_from([0, -1, 2**53, 2**53 + 1, 2**63 - 1, 2**63, 10**400, 0.5, 1e300, -2.0])
VALUES = st.recursive(
    st.none() | st.booleans() | NUMBERS | st.sampled_from(["", "x", "\u2028", '"']),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=4),
    max_leaves=12,
)
OBJECTS = st.dictionaries(NAMES, VALUES, max_size=6)


def widened(schema: Struct, *values: dict[str, Any]) -> Struct:
    for value in values:
        found = infer(value)
        assert found is None or isinstance(found, Struct)
        schema = schema if found is None else widen(schema, found)
    return schema


def without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: without_nulls(item) for name, item in value.items() if item is not None}
    return [without_nulls(item) for item in value] if isinstance(value, list) else value


def back(value: Any, of: Type) -> Any:
    """What a column holds, as the JSON that it came from."""
    if value is None:
        return None
    if isinstance(of, ListOf):
        return [back(item, of.element) for item in value]
    if isinstance(of, Struct):
        names = {field.column: field for field in of.fields}
        return {names[c].name: back(item, names[c].type) for c, item in value.items()}
    return value


def together(one: Any, other: Any) -> Any:
    """Two halves of an object: no value is in both."""
    if not isinstance(one, dict) or not isinstance(other, dict):
        assert one is None, "a value is both in its column and rescued"
        return other
    shared = {name: together(one[name], other[name]) for name in one.keys() & other.keys()}
    return {**one, **other, **shared}


@given(st.lists(OBJECTS, max_size=6), OBJECTS)
def test_every_field_is_in_its_column_or_rescued(seen: list[Any], message: Any) -> None:
    """
    Goal: nothing of a message is lost, bent or doubled, whatever the schema is.

    Method: put the columns and the rescued text together again: it is the message, without nulls.
    """
    schema = widened(EMPTY, *seen)
    columns, rescued = JsonRows(schema).row(json.dumps(message).encode())
    found = without_nulls(back(columns, schema))
    whole = together(found, json.loads(rescued)) if rescued else found
    assert without_nulls(whole) == without_nulls(message)
    assert (rescued is None) == JsonRows(schema).fits(message)


@given(st.lists(OBJECTS, max_size=8))
def test_a_schema_only_grows(seen: list[Any]) -> None:
    """Every step is one that tables take: columns are added, long becomes double, nothing else."""
    schema = EMPTY
    for value in seen:
        wider = widened(schema, value)
        before, after = spark_type(schema), spark_type(wider)
        assert grown(before, after) == after
        assert [f.column for f in wider.fields][: len(schema.fields)] == [
            f.column for f in schema.fields
        ]
        assert widened(wider, value) == wider
        schema = wider
    assert load_struct(json.loads(json.dumps(dump_type(schema)))) == schema


@given(st.lists(OBJECTS, max_size=8))
def test_column_names_are_unique(seen: list[Any]) -> None:
    def check(of: Type, taken: tuple[str, ...]) -> None:
        if isinstance(of, ListOf):
            check(of.element, ())
        if isinstance(of, Struct):
            names = [*taken, *(field.column.lower() for field in of.fields)]
            assert len(set(names)) == len(names)
            assert not any(set(name) & set(" .,;{}()\n\t=`") or not name for name in names)
            for field in of.fields:
                check(field.type, ())

    check(widened(EMPTY, *seen), METADATA_COLUMNS)


def test_a_conflicting_type_leaves_the_column_unchanged() -> None:
    schema = widened(EMPTY, {"a": 1, "b": {"c": "x"}}, {"a": "text", "b": {"c": 1, "d": True}})
    assert schema.fields == (
        Field("a", "a", "long"),
        Field("b", "b", Struct((Field("c", "c", "string"), Field("d", "d", "boolean")))),
    )
    columns, rescued = JsonRows(schema).row(b'{"a":"text","b":{"c":1.50,"d":true}}')
    assert columns == {"a": None, "b": {"c": None, "d": True}}
    # As it was sent: not 1.5.
    assert rescued == '{"a":"text","b":{"c":1.50}}'


def test_long_widens_to_double_and_inexact_values_are_rescued() -> None:
    schema = widened(EMPTY, {"a": 1}, {"a": 1.5})
    assert schema.fields == (Field("a", "a", "double"),)
    assert JsonRows(schema).row(b'{"a":3}') == ({"a": 3.0}, None)
    assert JsonRows(schema).row(b'{"a":9007199254740993}') == (
        {"a": None},
        '{"a":9007199254740993}',
    )
    assert JsonRows(schema).row(b'{"a":1e999,"b":2}') == ({"a": None}, '{"a":1e999,"b":2}')


def test_longs_are_kept_where_a_double_would_round() -> None:
    """Every long that became a double is found, also in lists, and can be undone."""
    longs = widened(EMPTY, {"a.b": 1, "in": {"c": 2, "d": 3}, "of": [{"e": 4}], "g": [5], "s": ""})
    doubles = widened(longs, {"a.b": 1.5, "in": {"c": 2.5}, "of": [{"e": 4.5}], "g": [0.5], "h": 1})
    paths = longs_to_doubles(spark_type(longs), spark_type(doubles))
    assert paths == [("a_b",), ("in", "c"), ("of", None, "e"), ("g", None)]
    assert keep_longs(doubles, paths) == widened(longs, {"h": 1})
    kept = keep_longs(doubles, paths[1:2])
    assert longs_to_doubles(spark_type(longs), spark_type(kept)) == [paths[0], *paths[2:]]
    assert JsonRows(kept).row(b'{"in":{"c":2.50,"d":1}}') == (
        {"in": {"c": None, "d": 1}},
        '{"in":{"c":2.50}}',
    )


def test_columns_have_a_limit() -> None:
    found = infer({f"id{n}": n for n in range(50)})
    assert isinstance(found, Struct)
    schema = widen(EMPTY, found, columns_max=10)
    assert len(schema.fields) == 10
    assert widen(schema, found, columns_max=10) == schema


def test_names_that_collide_are_numbered() -> None:
    schema = widened(EMPTY, {"a": 1, "A": 2, "": 3, "a.b": 4, "a_b": 5, "_Offset": 6})
    assert [field.column for field in schema.fields] == [
        "a", "A_2", "_", "a_b", "a_b_2", "_Offset_2",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("content_type", "value", "reason"),
    [
        ("application/json", b'{"a":1}', None),
        ("application/json; charset=utf-8", b" {}", None),
        ("application/json", b"[1]", "not an object"),
        ("application/json", b"null", "not an object"),
        ("application/json", b'"x"', "not an object"),
        ("application/json", b"{", "not JSON that can be decoded"),
        ("application/json", b'{"a":"\xff"}', "not JSON that can be decoded"),
        ("text/plain", b"{}", "not of JSON but of text/plain"),
        (None, b"{}", "not of JSON"),
    ],
)
def test_a_message_that_is_not_an_object_is_a_dead_letter(
    content_type: str | None, value: bytes, reason: str | None
) -> None:
    found = why_not_object(content_type, value)
    assert found is None if reason is None else reason in str(found)


def test_tables_refuse_a_schema_that_contradicts() -> None:
    one = spark_type(Struct((Field("a", "a", Struct((Field("b", "b", "long"),))),)))
    other = spark_type(Struct((Field("a", "a", Struct((Field("b", "b", "string"),))),)))
    with pytest.raises(SchemaConflict, match=r"'a\.b' is long in the table and string"):
        grown(one, other)
    assert grown(NO_COLUMNS, one) == one and retyped(one, one) is None
