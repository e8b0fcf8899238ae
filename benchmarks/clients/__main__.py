"""Install the other clients."""

from benchmarks.clients.running import CLIENTS

if __name__ == "__main__":
    for client in CLIENTS.values():
        client.install()
