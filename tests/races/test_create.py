"""Several clients create the same stream at the same moment (§5.1)."""

from __future__ import annotations

from collections import Counter

from tests.support.http import Connection, Response
from tests.support.reading import read_all
from tests.support.server import ServerProcess
from tests.support.together import HANG_S, together

CLIENTS = 12
ROUNDS = 100


def test_one_of_many_creates(server: ServerProcess, path: str) -> None:
    """
    Goal: of several equal PUTs exactly one creates the stream; the others find it (§5.1).

    Method: twelve clients, each on an open connection, send the same PUT at the same moment, each
    with first content of its own; the stream has the content of the one that got 201.
    """
    connections = [Connection.to(server.url, HANG_S) for _ in range(CLIENTS)]
    try:
        for number in range(ROUNDS):
            stream = f"{path}/{number}"

            def create(client: int, stream: str = stream) -> Response:
                text = {"Content-Type": "text/plain"}
                return connections[client].request("PUT", stream, text, b"by %d" % client)

            responses = together(
                [lambda client=client: create(client) for client in range(CLIENTS)]  # type: ignore[misc]
            )
            statuses = [response.status for response in responses]
            assert Counter(statuses) == {201: 1, 200: CLIENTS - 1}
            content = read_all(connections[0], stream)
            assert content is not None
            assert content.raw == b"by %d" % statuses.index(201)
            assert {response.headers["stream-next-offset"] for response in responses} == {
                content.next_offset
            }
    finally:
        for connection in connections:
            connection.close()


def test_unequal_creates_conflict(server: ServerProcess, path: str) -> None:
    """
    Goal: of PUTs with two configurations one kind wins: 201 once, 200 for its like, 409 for the
    others (§5.1).

    Method: six clients send one content type and six another, at the same moment.
    """
    for number in range(ROUNDS):
        stream = f"{path}/{number}"

        def create(kind: str, stream: str = stream) -> tuple[str, int]:
            with Connection.to(server.url, HANG_S) as connection:
                return kind, connection.request("PUT", stream, {"Content-Type": kind}).status

        kinds = ["text/plain", "text/html"] * (CLIENTS // 2)
        responses = together([lambda kind=kind: create(kind) for kind in kinds])  # type: ignore[misc]
        winner = next(kind for kind, status in responses if status == 201)
        for kind, count in (winner, {201: 1, 200: 5}), (_other(winner), {409: 6}):
            assert Counter(status for name, status in responses if name == kind) == count


def _other(kind: str) -> str:
    return "text/html" if kind == "text/plain" else "text/plain"
