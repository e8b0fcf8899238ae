"""Forks of a stream while others append to it and delete it (forks, today.md)."""

from __future__ import annotations

from collections import Counter

from tests.support.chance import seeded
from tests.support.http import Connection, request
from tests.support.reading import problem_code
from tests.support.server import ServerProcess
from tests.support.together import HANG_S, together, wait_until

TEXT = {"Content-Type": "text/plain"}
ROUNDS = 25
CLIENTS = 4


def test_forks_race_appends_and_deletion(server: ServerProcess, path: str) -> None:
    """
    Goal: a fork has a prefix of its source, at least what was acknowledged before it was requested.
    With a DELETE among them, a fork is 201, 404 or 409, and what was created is readable. When all
    forks are deleted, the source is removed.

    Method: many times over, forks, appends and one DELETE start together.
    """
    with seeded("forks") as chance:
        for number in range(ROUNDS):
            source = f"{path}/{number}"
            assert request("PUT", server.url + source, TEXT, b"0").status == 201
            deletes = chance.random() < 0.7

            def fork(name: int, source: str = source) -> tuple[str, int]:
                with Connection.to(server.url, HANG_S) as connection:
                    target = f"{source}/fork-{name}"
                    response = connection.request("PUT", target, {"Stream-Forked-From": source})
                    if response.status != 201:
                        code = problem_code(response)
                        assert code in ("fork-source-not-found", "fork-source-gone"), response
                    return target, response.status

            def append(name: int, source: str = source) -> tuple[str, int]:
                with Connection.to(server.url, HANG_S) as connection:
                    body = f"[{name}]".encode()
                    response = connection.request("POST", source, TEXT, body)
                    assert response.status in (204, 404, 410), response
                    return "", response.status

            def delete(source: str = source) -> tuple[str, int]:
                response = request("DELETE", server.url + source)
                assert response.status == 204
                return "", response.status

            actions = [lambda name=name: fork(name) for name in range(CLIENTS)]
            actions += [lambda name=name: append(name) for name in range(CLIENTS)]
            if deletes:
                actions.append(delete)
            chance.shuffle(actions)
            found = together(actions)
            forks = [target for target, status in found if target and status == 201]
            for target in forks:
                content = request("GET", f"{server.url}{target}?offset=-1")
                assert content.status == 200
                assert content.body.startswith(b"0")
                pieces = content.body[1:].replace(b"]", b"] ").split()
                assert max(Counter(pieces).values(), default=1) == 1
            status = request("HEAD", server.url + source).status
            assert status == ((410 if forks else 404) if deletes else 200)
            for target in forks:
                assert request("DELETE", server.url + target).status == 204
            if deletes:
                wait_until(
                    lambda source=source: request("HEAD", server.url + source).status == 404  # type: ignore[misc]
                )


def test_the_same_fork_by_many_clients_is_created_once(server: ServerProcess, path: str) -> None:
    """And is one reference: when it is deleted, so is the deleted source."""
    for number in range(ROUNDS):
        source = f"{path}/{number}"
        assert request("PUT", server.url + source, TEXT, b"0").status == 201
        headers = {"Stream-Forked-From": source}

        def fork(source: str = source, headers: dict[str, str] = headers) -> int:
            return request("PUT", f"{server.url}{source}/fork", headers).status

        statuses = Counter(together([fork] * CLIENTS))
        assert statuses == {201: 1, 200: CLIENTS - 1}
        assert request("DELETE", server.url + source).status == 204
        assert request("DELETE", f"{server.url}{source}/fork").status == 204
        assert request("HEAD", server.url + source).status == 404
