"""Certificates of a private authority, for servers on loopback."""

from __future__ import annotations

import ssl
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import NameOID

__all__ = ["Authority"]

DAY = timedelta(days=1)


class Authority:
    """Signs certificates; `file` is its own certificate, for clients to trust."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "Tailrace tests")])
        builder = self._builder(self._name, self._key).add_extension(
            x509.BasicConstraints(ca=True, path_length=None), critical=True
        )
        self.file = directory / "authority.pem"
        self.file.write_bytes(_pem(builder.sign(self._key, hashes.SHA256())))

    def issue(self, name: str, kind: str = "ec") -> tuple[Path, Path]:
        """A certificate for 127.0.0.1 with this common name, and its key."""
        key = ec.generate_private_key(ec.SECP256R1()) if kind == "ec" else _rsa_key()
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        names = [x509.DNSName("localhost"), x509.IPAddress(ip_address("127.0.0.1"))]
        builder = self._builder(subject, key).add_extension(
            x509.SubjectAlternativeName(names), critical=False
        )
        certificate_file = self._directory / f"{name}.pem"
        key_file = self._directory / f"{name}.key"
        certificate_file.write_bytes(_pem(builder.sign(self._key, hashes.SHA256())))
        key_file.write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM,
                serialization.PrivateFormat.PKCS8,
                serialization.NoEncryption(),
            )
        )
        return certificate_file, key_file

    def client_context(self) -> ssl.SSLContext:
        """A context that trusts only this authority."""
        return ssl.create_default_context(cafile=str(self.file))

    def _builder(
        self, subject: x509.Name, key: ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey
    ) -> x509.CertificateBuilder:
        now = datetime.now(UTC)
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - DAY)
            .not_valid_after(now + DAY)
            .add_extension(
                x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False
            )
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()),
                critical=False,
            )
        )


def _rsa_key() -> rsa.RSAPrivateKey:
    return rsa.generate_private_key(65537, 2048)


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)
