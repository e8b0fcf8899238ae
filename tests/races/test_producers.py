"""Idempotent producers over several connections at once (§5.2.1)."""

from __future__ import annotations

import threading
import time
from collections import Counter

from tests.support.chance import derive, seeded
from tests.support.http import Connection, request
from tests.support.payloads import pack, unpack_all
from tests.support.reading import OCTETS, read_all
from tests.support.server import ServerProcess
from tests.support.together import HANG_S, together

BATCHES = 300
CONNECTIONS = 6


def claim(producer: str, epoch: int, seq: int) -> dict[str, str]:
    return {
        "Content-Type": OCTETS,
        "Producer-Id": producer,
        "Producer-Epoch": str(epoch),
        "Producer-Seq": str(seq),
    }


def test_pipelined_batches_out_of_order(server: ServerProcess, path: str) -> None:
    """
    Goal: batches of one producer that arrive in any order, some twice, are stored once each and
    in the order of their numbers; a gap is refused with both numbers (§5.2.1).

    Method: six connections share the batches of three producers, shuffled, every third one twice,
    and several under way on each connection; what is refused for a gap is sent again later.
    """
    assert request("PUT", server.url + path, {"Content-Type": OCTETS}).status == 201
    with seeded("pipelined") as chance:
        seeds = [chance.random() for _ in range(CONNECTIONS)]
        accepted: Counter[tuple[str, int]] = Counter()
        lock = threading.Lock()

        def send(number: int) -> None:
            shuffle = derive(seeds[number])
            todo = [
                (f"p{producer}", seq)
                for producer in range(3)
                for seq in range(BATCHES)
                if seq % CONNECTIONS == number or (seq % 3 == 0 and seq % 5 == number % 5)
            ]
            with Connection.to(server.url, HANG_S) as connection:
                while todo:
                    # Not wholly at random, or hardly a batch would find its predecessor there.
                    todo.sort(key=lambda item: item[1] + shuffle.uniform(0, 6))
                    window = todo[: shuffle.randint(1, 4)]
                    for producer, seq in window:
                        body = pack(producer, seq, bytes(seq))
                        connection.send_request("POST", path, claim(producer, 0, seq), body)
                    for producer, seq in window:
                        response = connection.read_response("POST")
                        if response.status == 409:
                            assert response.headers["producer-received-seq"] == str(seq)
                            assert int(response.headers["producer-expected-seq"]) < seq
                            continue
                        assert response.status in (200, 204), response
                        assert int(response.headers["producer-seq"]) >= seq
                        todo.remove((producer, seq))
                        with lock:
                            accepted[producer, seq] += response.status == 200

        together([lambda number=number: send(number) for number in range(CONNECTIONS)])  # type: ignore[misc]
        everything = {(f"p{producer}", seq) for producer in range(3) for seq in range(BATCHES)}
        assert accepted == dict.fromkeys(everything, 1), "one 200 for each batch, no more"
        with Connection.to(server.url, HANG_S) as connection:
            content = read_all(connection, path)
        assert content is not None
        found = unpack_all(content.raw)
        for producer in range(3):
            own = [message.seq for message in found if message.writer == f"p{producer}"]
            assert own == list(range(BATCHES))
        assert len(found) == len(everything)


def test_new_epoch_fences_the_old_one(server: ServerProcess, path: str) -> None:
    """
    Goal: once a new epoch is acknowledged, nothing of the old one is, and what was acknowledged
    of the old one lies before it (§5.2.1).

    Method: a producer sends as fast as it can until it is refused; another one with the same id
    takes over in the middle of it. Many times over.
    """
    for number in range(60):
        stream = f"{path}/{number}"
        assert request("PUT", server.url + stream, {"Content-Type": OCTETS}).status == 201
        fenced = threading.Event()
        delay_s = 0.0005 * (number % 10)

        def zombie(stream: str = stream, fenced: threading.Event = fenced) -> int:
            with Connection.to(server.url, HANG_S) as connection:
                for seq in range(100_000):
                    was_fenced = fenced.is_set()
                    body = pack("old", seq, b"")
                    response = connection.request("POST", stream, claim("p", 0, seq), body)
                    if response.status == 403:
                        assert response.headers["producer-epoch"] == "1"
                        return seq
                    assert response.status == 200, response
                    assert not was_fenced, "an old epoch was acknowledged after the new one"
            raise AssertionError("never fenced")

        def successor(
            stream: str = stream, fenced: threading.Event = fenced, delay_s: float = delay_s
        ) -> int:
            time.sleep(delay_s)
            with Connection.to(server.url, HANG_S) as connection:
                for seq in range(5):
                    body = pack("new", seq, b"")
                    response = connection.request("POST", stream, claim("p", 1, seq), body)
                    assert response.status == 200, response
                    fenced.set()
            return -1

        stored, _ = together([zombie, successor])
        with Connection.to(server.url, HANG_S) as connection:
            content = read_all(connection, stream)
        assert content is not None
        found = [(message.writer, message.seq) for message in unpack_all(content.raw)]
        old = [("old", seq) for seq in range(stored)]
        assert found == old + [("new", seq) for seq in range(5)]
