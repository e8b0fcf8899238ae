"""Values from the headers of responses."""

from tailrace.client.errors import AnswerInvalid
from tailrace.client.flow import Response
from tailrace.client.values import Appended, Chunk

__all__ = ["appended", "chunk_of", "is_true", "next_offset"]


def appended(response: Response, *, claimed: bool) -> Appended:
    """The result of an append."""
    # §5.2.1: new data of a producer is 200, a retry is 204 and may lack the offset.
    duplicate = claimed and response.status == 204
    offset = response.headers.get("stream-next-offset") if duplicate else next_offset(response)
    return Appended(offset, is_true(response, "stream-closed"), duplicate)


def next_offset(response: Response) -> str:
    try:
        return response.headers["stream-next-offset"]
    except KeyError:
        raise AnswerInvalid(response.url, "the response has no Stream-Next-Offset") from None


def is_true(response: Response, header: str) -> bool:
    return response.headers.get(header, "").lower() == "true"


def chunk_of(response: Response, data: bytes) -> Chunk:
    closed = is_true(response, "stream-closed")
    up_to_date = closed or is_true(response, "stream-up-to-date")
    return Chunk(data, next_offset(response), up_to_date, closed)
