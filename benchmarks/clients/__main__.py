"""Install the clients that are not ours."""

from benchmarks.clients.running import CLIENTS

if __name__ == "__main__":
    for client in CLIENTS.values():
        client.install()
