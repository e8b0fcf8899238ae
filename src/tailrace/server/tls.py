"""
TLS (§10.8): a certificate and its key, which can be replaced while the server runs.

Open connections keep their certificate; new ones get the certificate of the last reload. A reload
of an invalid pair changes nothing.
"""

import ssl
from pathlib import Path

from tailrace.server.settings import SettingsError

__all__ = ["Tls", "TlsInvalid"]


class TlsInvalid(SettingsError):
    """The certificate or its key cannot be used; the text names the file and says why."""


class Tls:
    """The certificate of new connections."""

    def __init__(self, certificate: str, key: str = "") -> None:
        """
        Read the files.

        Raises:
            TlsInvalid: They cannot be read, or do not belong together.
        """
        self._certificate = Path(certificate)
        self._key = Path(key) if key else self._certificate
        self.reload()

    def reload(self) -> None:
        """
        Read the files again.

        Raises:
            TlsInvalid: They cannot be used; nothing is changed.
        """
        # A new context: an existing one would keep the old pair beside the new one.
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.set_alpn_protocols(["http/1.1"])
        for file in (self._certificate, self._key):
            if not file.is_file():
                raise TlsInvalid(f"{file}: no such file (--tls-cert, --tls-key)")
        try:
            # Without this, a key with a pass phrase would prompt on the terminal.
            context.load_cert_chain(self._certificate, self._key, password=_no_pass_phrase)
        except (OSError, ValueError) as error:
            raise TlsInvalid(
                f"{self._certificate} and {self._key} are not a PEM certificate and its private "
                f"key: {error}"
            ) from None
        self.context = context


def _no_pass_phrase() -> str:
    raise ValueError("the key has a pass phrase: the server needs a key without one")
