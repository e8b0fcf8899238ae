"""
What a request brings to say who it comes from.

    Authorization: Bearer <token or JWT>
    Authorization: Basic <any name>:<token or JWT>        the password is all that counts
    ?access_token=<token or JWT>                          GET and HEAD alone, and then to read only

The last one is for `EventSource`, which cannot send headers. A URL gets around, in histories, logs
of proxies and Referer, so it must not be able to change anything. Credentials in two places are
refused (RFC 6750 §2): whoever checks the one and whoever acts on the other need not be the same.

Basic is taken and never asked for: a browser that is asked keeps the password, and sends it along
with what other people's pages ask of us.
"""

import base64
import binascii
import re
from typing import Final, NamedTuple
from urllib.parse import unquote_to_bytes

from tailrace.server.guard.access.errors import CredentialsRefused, CredentialsRepeated
from tailrace.server.message import Request

__all__ = ["CREDENTIAL_BYTES_MAX", "QUERY_PARAMETER", "Credentials", "read_credentials", "sent"]

QUERY_PARAMETER: Final = "access_token"
CREDENTIAL_BYTES_MAX: Final = 8192

# As it is written, not percent-encoded: nobody has a reason to, and a URL is looked at by many.
_IN_QUERY: Final = re.compile(rb"(?:^|&)access_token=([^&]*)")
_MARK: Final = QUERY_PARAMETER.encode()
_READS: Final = ("GET", "HEAD")
_BASIC: Final = "send Authorization: Basic with base64 of name:token"


class Credentials(NamedTuple):
    """A token or a JWT, and how it came."""

    text: str
    in_query: bool


def sent(request: Request) -> bytes | None:
    """
    The bytes that credentials are in, if there are any: a header's value, or `?` and a parameter's.

    Raises:
        CredentialsRepeated: They are in more than one place.
        CredentialsRefused: They are larger than any can be, or in the URL of a write.
    """
    found = request.headers.get(b"authorization")
    if _MARK in request.query and (given := _IN_QUERY.findall(request.query)):
        if found is not None or len(given) > 1:
            raise CredentialsRepeated
        if request.method not in _READS:
            raise CredentialsRefused("a token in the URL is good for GET and HEAD alone")
        found = b"?" + given[0]
    if found is None:
        return None
    if len(found) > CREDENTIAL_BYTES_MAX:
        raise CredentialsRefused("the credentials are too large")
    if request.repeated is not None and b"authorization" in request.repeated:
        raise CredentialsRepeated
    return found


def read_credentials(found: bytes) -> Credentials:
    """
    The token in what `sent` found.

    Raises:
        CredentialsRefused: It is of no known form.
    """
    if found[:1] == b"?":
        return Credentials(_text(unquote_to_bytes(found[1:])), in_query=True)
    scheme, _, rest = found.partition(b" ")
    match scheme.lower():
        case b"bearer":
            return Credentials(_text(rest.strip(b" ")), in_query=False)
        case b"basic":
            return Credentials(_password(rest.strip(b" ")), in_query=False)
    raise CredentialsRefused("the scheme of the Authorization header is neither Bearer nor Basic")


def _password(encoded: bytes) -> str:
    try:
        decoded = base64.b64decode(encoded, validate=True)
    except binascii.Error:
        raise CredentialsRefused(f"the credentials are not base64; {_BASIC}") from None
    _, colon, password = decoded.partition(b":")
    if not colon:
        raise CredentialsRefused(f"the credentials have no colon; {_BASIC}")
    return _text(password)


def _text(raw: bytes) -> str:
    """Tokens and JWTs are printable ASCII; what is not, is not looked at any further."""
    text = raw.decode("latin-1")
    if not text or not text.isascii() or not text.isprintable() or " " in text:
        raise CredentialsRefused("the credentials are neither a token nor a JWT")
    return text
