"""
TLS (§10.8): a certificate and its key, which may be replaced while the server runs.

Connections keep what they were opened with; new ones get what is in the files since the last
reload. A pair that does not fit changes nothing.
"""

import ssl
from pathlib import Path

__all__ = ["Tls", "TlsInvalid"]


class TlsInvalid(Exception):
    """The certificate or its key cannot be used; the message says which file and why."""


class Tls:
    """What new connections are greeted with."""

    def __init__(self, certificate: str, key: str = "") -> None:
        """
        Read the files.

        Raises:
            TlsInvalid: They cannot be read, or do not belong together.
        """
        self._certificate = Path(certificate)
        self._key = Path(key) if key else self._certificate
        self.context = self._load()
        """For connections that come from now on."""

    def reload(self) -> None:
        """
        Read the files anew.

        Raises:
            TlsInvalid: As before; then nothing has changed.
        """
        # Another one, and not the same with another pair: that would keep the old pair beside it.
        self.context = self._load()

    def _load(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.set_alpn_protocols(["http/1.1"])
        for file in (self._certificate, self._key):
            if not file.is_file():
                raise TlsInvalid(f"{file}: no such file (--tls-cert, --tls-key)")
        try:
            # A key with a pass phrase would ask for it on the terminal, and wait.
            context.load_cert_chain(self._certificate, self._key, password=_no_pass_phrase)
        except (OSError, ValueError) as error:
            raise TlsInvalid(
                f"{self._certificate} and {self._key} are not a PEM certificate and its private "
                f"key: {error}"
            ) from None
        return context


def _no_pass_phrase() -> str:
    raise ValueError("the key has a pass phrase; the server needs one without")
