"""§5.1: the forms of Stream-TTL and Stream-Expires-At."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace.protocol.errors import HeaderInvalid
from tailrace.protocol.expiry import format_expires_at, parse_expires_at, parse_ttl
from tailrace.protocol.limits import TTL_S_MAX

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
YEAR_9999_END_MS = 253_402_300_799_999


class TestTtl:
    def test_non_negative_decimal_integers(self) -> None:
        for text in ["0", "1", "3600", str(TTL_S_MAX)]:
            assert parse_ttl(text) == int(text)

    def test_everything_else_is_400(self) -> None:
        for text in [
            "+3600",
            "03600",
            "3600.0",
            "3.6e3",  # the examples of §5.1
            "",
            " ",
            "00",
            "-0",
            "-1",
            " 1",
            "1 ",
            "1\n",
            "1_0",
            "0x10",
            "1e3",
            "abc",
            "١",
            "１",
            "²",
            "1,000",
            "NaN",
            "∞",
            str(TTL_S_MAX + 1),
            "9" * 16,
            "9" * 5000,
        ]:
            with pytest.raises(HeaderInvalid) as caught:
                parse_ttl(text)
            assert (caught.value.status, caught.value.header) == (400, "Stream-TTL")

    @given(seconds=st.integers(0, TTL_S_MAX))
    def test_round_trip(self, seconds: int) -> None:
        assert parse_ttl(str(seconds)) == seconds


class TestExpiresAt:
    def test_rfc_3339(self) -> None:
        for text, milliseconds in [
            ("1970-01-01T00:00:00Z", 0),
            ("2030-01-15T12:00:00Z", 1_894_708_800_000),
            ("2030-01-15T12:00:00.5Z", 1_894_708_800_500),
            ("2030-01-15T12:00:00.123456789Z", 1_894_708_800_123),
            ("2030-01-15t12:00:00z", 1_894_708_800_000),
            ("2030-01-15 12:00:00Z", 1_894_708_800_000),
            ("2030-01-15T14:00:00+02:00", 1_894_708_800_000),
            ("2030-01-15T06:30:00-05:30", 1_894_708_800_000),
            ("2030-01-15T12:00:00-00:00", 1_894_708_800_000),
            ("2024-02-29T00:00:00Z", 1_709_164_800_000),
            ("1990-12-31T23:59:60Z", 662_687_999_000),
            # RFC 3339: secfrac is any number of digits.
            ("2030-01-15T12:00:00.123456789012Z", 1_894_708_800_123),
        ]:
            assert parse_expires_at(text) == milliseconds

    def test_everything_else_is_400(self) -> None:
        for text in [
            "",
            "now",
            "0",
            "1894708800",
            "2030",
            "2030-01-15",
            "2030-01-15T12:00:00",
            "2030-01-15T12:00Z",
            "20300115T120000Z",
            "2030-W03-2T12:00:00Z",
            "2030-015T12:00:00Z",
            "2030-01-15T12:00:00,5Z",
            "2030-01-15T12:00:00.Z",
            "2030-01-15T12:00:00+0200",
            "2030-01-15T12:00:00+02",
            "2030-01-15T12:00:00+24:00",
            "2030-01-15T12:00:00+02:60",
            "2030-13-01T00:00:00Z",
            "2030-00-01T00:00:00Z",
            "2030-02-29T00:00:00Z",
            "2030-01-32T00:00:00Z",
            "2030-01-00T00:00:00Z",
            "2030-01-15T24:00:00Z",
            "2030-01-15T12:60:00Z",
            "2030-01-15T12:00:61Z",
            "2030-01-15T12:00:00ZZ",
            "2030-01-15T12:00:00Z\n",
            " 2030-01-15T12:00:00Z",
            "+2030-01-15T12:00:00Z",
            "12030-01-15T12:00:00Z",
            "٢٠٣٠-01-15T12:00:00Z",
            "2030-01-15T12:00:00 Z",
            "Tue, 15 Jan 2030 12:00:00 GMT",
        ]:
            with pytest.raises(HeaderInvalid) as caught:
                parse_expires_at(text)
            assert (caught.value.status, caught.value.header) == (400, "Stream-Expires-At")

    @given(milliseconds=st.integers(0, YEAR_9999_END_MS))
    def test_what_we_format_we_parse(self, milliseconds: int) -> None:
        assert parse_expires_at(format_expires_at(milliseconds)) == milliseconds

    @given(
        moment=st.datetimes(datetime(1, 1, 1), datetime(9999, 12, 31, 23, 59, 59)),
        zone_minutes=st.integers(-23 * 60 - 59, 23 * 60 + 59),
        digits=st.integers(0, 6),
    )
    def test_what_we_accept_we_can_store_and_format(
        self, moment: datetime, zone_minutes: int, digits: int
    ) -> None:
        """
        Goal: no accepted moment breaks a later response or the expiry index, which holds no
        negative numbers. Method: any moment in any zone; either it is refused, or it is what the
        standard library says, but not before 1970, formats, and parses again to the same.
        """
        hours, minutes = divmod(abs(zone_minutes), 60)
        fraction = f".{moment.microsecond:06d}"[: digits + 1] if digits else ""
        text = moment.replace(microsecond=0).isoformat() + fraction
        text = text.rjust(len("0001-01-01T00:00:00") + len(fraction), "0")
        text += f"{'-' if zone_minutes < 0 else '+'}{hours:02d}:{minutes:02d}"
        try:
            milliseconds = parse_expires_at(text)
        except HeaderInvalid:
            return
        whole = moment.replace(microsecond=0, tzinfo=UTC) - timedelta(minutes=zone_minutes) - EPOCH
        part = int(fraction[1:4].ljust(3, "0") or 0)
        assert milliseconds == max(0, whole // timedelta(milliseconds=1) + part)
        assert parse_expires_at(format_expires_at(milliseconds)) == milliseconds

    def test_a_moment_that_cannot_be_formatted_is_400(self) -> None:
        """A stream of such an end could be created, and HEAD on it would fail."""
        with pytest.raises(HeaderInvalid):
            parse_expires_at("9999-12-31T23:59:59-23:59")

    def test_a_moment_before_1970_counts_as_1970(self) -> None:
        """The expiry index counts from there, and the stream is over either way."""
        for text in ["1969-12-31T23:59:59Z", "0001-01-01T00:00:00Z", "0001-01-01T00:00:00+23:59"]:
            assert parse_expires_at(text) == 0

    def test_milliseconds_are_written_only_where_there_are_any(self) -> None:
        assert format_expires_at(1_894_708_800_000) == "2030-01-15T12:00:00Z"
        assert format_expires_at(1_894_708_800_050) == "2030-01-15T12:00:00.050Z"
