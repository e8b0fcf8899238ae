"""Parsing and checking of options."""

import pickle

import pytest

from tailrace.spark.options import OPTIONS, OptionInvalid, read_options, write_options

URL = {"url": "http://127.0.0.1:1"}


def test_names_are_compared_without_case() -> None:
    options = read_options({"URL": "http://a", "BUCKET": "logs", "maxmessagespertrigger": "5"})
    assert (options.bucket, options.max_messages) == ("logs", 5)


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"bucket": ""},
        {"stream": "a", "streams": "b"},
        {"stream": "a", "prefix": "b"},
        {"prefix": "b"},
        {"bucket": "b", "startingOffset": "earliest"},
        {"bucket": "b", "startingOffsets": "first"},
        {"bucket": "b", "startingOffsets": '{"a": 1}'},
        {"bucket": "b", "startingOffsets": "latest", "startingTimestamp": "5"},
        {"bucket": "b", "endingOffsets": "earliest"},
        {"bucket": "b", "startingTimestamp": "yesterday"},
        {"bucket": "b", "maxMessagesPerTrigger": "0"},
        {"bucket": "b", "maxBytesPerTrigger": "1.5"},
        {"bucket": "b", "failOnDataLoss": "no"},
        {"bucket": "b", "value": "json"},
        {"bucket": "b", "streams": "[1]"},
        {"bucket": "b", "streams": "a,,b"},
        {"bucket": "b", "headers": "[]"},
        {"bucket": "b", "timeout": "-1"},
        {"bucket": "b", "createStreams": "true"},
        {"path": "/x"},
    ],
)
def test_invalid_read_options_are_refused(given: dict[str, str]) -> None:
    with pytest.raises(OptionInvalid) as caught:
        read_options({**URL, **given})
    assert caught.value.name in str(caught.value)
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)


@pytest.mark.parametrize(
    "given",
    [
        {"batchId": "1"},
        {"createBuckets": "true"},
        {"ttl": "0"},
        {"startingOffsets": "latest"},
        {"sinkId": ""},
    ],
)
def test_invalid_write_options_are_refused(given: dict[str, str]) -> None:
    with pytest.raises(OptionInvalid):
        write_options({**URL, **given})


def test_a_url_is_required() -> None:
    with pytest.raises(OptionInvalid, match="url"):
        read_options({"bucket": "logs"})


def test_lists_times_and_offsets() -> None:
    options = read_options({**URL, "streams": "a, b,a"})
    assert options.names == ("a", "b")
    assert read_options({**URL, "streams": '["a,b"]'}).names == ("a,b",)
    options = read_options({**URL, "bucket": "b", "startingTimestamp": "1970-01-01T00:00:01"})
    assert options.starting_ms == 1000
    options = read_options({**URL, "bucket": "b", "startingOffsets": '{"a": "-1"}'})
    assert options.starting == {"a": "-1"}


def test_each_option_has_one_name_and_one_field() -> None:
    assert len({option.name.lower() for option in OPTIONS}) == len(OPTIONS)
    assert len({option.field for option in OPTIONS}) == len(OPTIONS)
