"""What the heads of answers say."""

from tailrace.client.errors import AnswerInvalid
from tailrace.client.flow import Answer
from tailrace.client.values import Appended, Chunk

__all__ = ["appended", "chunk_of", "is_true", "next_offset"]


def appended(answer: Answer, *, claimed: bool) -> Appended:
    """What the answer to an append says."""
    # §5.2.1: new data of a producer is 200, a retry 204, which need not say where it went.
    duplicate = claimed and answer.status == 204
    offset = answer.headers.get("stream-next-offset") if duplicate else next_offset(answer)
    return Appended(offset, is_true(answer, "stream-closed"), duplicate)


def next_offset(answer: Answer) -> str:
    try:
        return answer.headers["stream-next-offset"]
    except KeyError:
        raise AnswerInvalid(answer.url, "the answer has no Stream-Next-Offset") from None


def is_true(answer: Answer, header: str) -> bool:
    return answer.headers.get(header, "").lower() == "true"


def chunk_of(answer: Answer, data: bytes) -> Chunk:
    closed = is_true(answer, "stream-closed")
    up_to_date = closed or is_true(answer, "stream-up-to-date")
    return Chunk(data, next_offset(answer), up_to_date, closed)
