"""X§1.1: what buckets and streams may be called, and the keys that they are stored under."""

import re
import string
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace.protocol.errors import BucketInvalid, NameInvalid
from tailrace.protocol.names import (
    NO_BUCKET,
    STREAMS,
    bucket_key,
    bucket_of,
    bucketed_stream_key,
)

ALLOWED = string.ascii_lowercase + string.digits + "_-"
BUCKET_IDS = st.text(ALLOWED, min_size=4, max_size=64)
SHORT_BUCKET_IDS = st.text(ALLOWED, min_size=4, max_size=10)
# Up to 10 + 1 + 25 * 4 bytes: always short enough.
STREAM_IDS = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=25).filter(
    lambda text: not re.search(r"/|\0|\.\.", text) and text not in (".", STREAMS)
)


class TestBucketId:
    """bucket_id MUST match ^[a-z0-9_-]{4,64}$."""

    def test_valid(self) -> None:
        for bucket_id in [
            "abcd",
            "0000",
            "____",
            "----",
            "-a_0",
            "v1v1",
            "streams",
            "a" * 64,
            ALLOWED,
        ]:
            assert bucket_key(bucket_id) == bucket_id.encode("ascii")

    def test_everything_else_is_400(self) -> None:
        for bucket_id in [
            "",
            "a",
            "abc",
            "a" * 65,
            "a" * 10_000,
            "ABCD",
            "abcD",
            "ab.d",
            "ab d",
            " abcd",
            "abcd ",
            "abcd\n",
            "\nabcd",
            "abcd\r",
            "abcd\0",
            "ab\0d",
            "ab/d",
            "ab\\d",
            "ab%d",
            "ab~d",
            "ab+d",
            "äbcd",
            "abcｄ",
            "ab٣4",
            "ſabcd",
            "abcK",
            "a😀cd",
            "a:cd",
            "a`cd",
            "a{cd",
            "a^cd",
            "a@cd",
        ]:
            with pytest.raises(BucketInvalid) as caught:
                bucket_key(bucket_id)
            assert caught.value.status == 400
            # A part of what was sent is quoted, not all of it.
            assert len(caught.value.detail) < 700
            with pytest.raises(BucketInvalid):
                bucketed_stream_key(bucket_id, "s")

    @given(text=st.one_of(st.text(max_size=70), st.text(ALLOWED + ".A\n", max_size=70)))
    def test_it_is_the_regular_expression(self, text: str) -> None:
        # `$` alone would let a line end pass, which the grammar does not mean.
        valid = re.match(r"^[a-z0-9_-]{4,64}\Z", text) is not None
        try:
            assert bucket_key(text) == text.encode()
        except BucketInvalid:
            assert not valid
        else:
            assert valid


class TestStreamId:
    """stream_id: any UTF-8 string but for `/`, NUL, `..` and what is too long."""

    def test_valid(self) -> None:
        for stream_id in [
            "s",
            " ",
            "\n",
            "\x7f",
            "\\",
            "%",
            "%2F",
            "-",
            "a.b",
            ".a",
            "a.",
            ".a.",
            "snapshot",
            "bootstrap",
            "stream",
            "streams ",
            "Streams",
            "streamss",
            "ä",
            "a\u0308",
            "😀",
            "\U0010ffff",
            "\ufeff",
            "'; drop",
            "*",
            "?",
            "#",
            "v1",
        ]:
            assert bucketed_stream_key("abcd", stream_id) == b"abcd\0" + stream_id.encode()

    def test_refused(self) -> None:
        for stream_id in [
            "",
            ".",
            "..",
            "...",
            "a..",
            "..a",
            "a..b",
            "....",
            "/",
            "a/b",
            "/a",
            "a/",
            "../x",
            "\0",
            "a\0",
            "\0a",
            "a\0b",
            "streams",
        ]:
            with pytest.raises(NameInvalid) as caught:
                bucketed_stream_key("abcd", stream_id)
            assert caught.value.status == 400

    @pytest.mark.parametrize("letter", ["a", "ä", "€", "😀"])
    @pytest.mark.parametrize("bucket_length", [4, 5, 33, 63, 64])
    def test_the_combined_key_has_122_bytes_at_most(self, bucket_length: int, letter: str) -> None:
        """`{bucket_id}/{stream_id}`, in bytes of UTF-8 and not in characters."""
        bucket_id = "b" * bucket_length
        room = 122 - bucket_length - 1
        size = len(letter.encode())
        longest = letter * (room // size) + "x" * (room % size)
        assert len(f"{bucket_id}/{longest}".encode()) == 122
        assert bucketed_stream_key(bucket_id, longest).endswith(longest.encode())
        for too_long in (longest + "x", letter * (room // size + 1)):
            with pytest.raises(NameInvalid):
                bucketed_stream_key(bucket_id, too_long)

    def test_too_long_for_any_bucket(self) -> None:
        """The shortest bucket leaves 117 bytes."""
        for length in [118, 121, 122, 123, 200, 100_000]:
            with pytest.raises(NameInvalid) as caught:
                bucketed_stream_key("abcd", "s" * length)
            assert "122" in caught.value.detail
            assert len(caught.value.detail) < 200


class TestKeys:
    @given(bucket_id=SHORT_BUCKET_IDS, stream_id=STREAM_IDS)
    def test_a_key_has_the_bucket_and_the_stream(self, bucket_id: str, stream_id: str) -> None:
        key = bucketed_stream_key(bucket_id, stream_id)
        assert bucket_of(key) == bucket_key(bucket_id)
        assert key[len(bucket_id) + 1 :].decode() == stream_id

    @given(
        one=st.tuples(SHORT_BUCKET_IDS, STREAM_IDS), other=st.tuples(SHORT_BUCKET_IDS, STREAM_IDS)
    )
    def test_different_streams_have_different_keys(
        self, one: tuple[str, str], other: tuple[str, str]
    ) -> None:
        """`ab-c` / `d` and `ab` / `-cd` must not meet."""
        assert (bucketed_stream_key(*one) == bucketed_stream_key(*other)) == (one == other)

    @given(
        bucket_id=SHORT_BUCKET_IDS,
        streams=st.lists(STREAM_IDS, max_size=8),
        neighbours=st.lists(st.tuples(SHORT_BUCKET_IDS, STREAM_IDS), max_size=8),
    )
    def test_streams_of_a_bucket_lie_together_in_the_order_of_their_ids(
        self, bucket_id: str, streams: list[str], neighbours: list[tuple[str, str]]
    ) -> None:
        own = {(bucket_id, stream) for stream in streams}
        others = {pair for pair in neighbours if pair[0] != bucket_id}
        keys = sorted(bucketed_stream_key(*pair) for pair in own | others)
        mine = [at for at, key in enumerate(keys) if bucket_of(key) == bucket_id.encode()]
        assert len(mine) == len(own)
        assert all(after == before + 1 for before, after in pairwise(mine))
        ids = [keys[at].partition(b"\0")[2] for at in mine]
        assert ids == sorted({stream.encode() for stream in streams})

    @given(bucket_id=BUCKET_IDS, name=st.binary(max_size=20))
    def test_the_base_surface_has_no_bucket(self, bucket_id: str, name: bytes) -> None:
        """Not even for a stream that is called like one: `/v1/stream/abcd/s`."""
        assert bucket_of(NO_BUCKET + name) == b""
        assert bucket_of(NO_BUCKET + bucket_id.encode() + b"/s") == b""
        assert bucket_of(bucket_id.encode()) == b""
