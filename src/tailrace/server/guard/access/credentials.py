"""
The credentials of a request.

    Authorization: Bearer <token or JWT>
    Authorization: Basic <any name>:<token or JWT>        only the password counts
    ?access_token=<token or JWT>                          GET and HEAD only, with read grants only

The last form is for `EventSource`, which cannot send headers. URLs end up in browser histories, in
logs of proxies and in `Referer`, so such a token must not be able to change anything. More than one
credential is rejected (RFC 6750 §2): two components could each check a different one.

Basic is accepted but never requested: a browser that is asked for it stores the password, and sends
it with requests of other sites' pages.
"""

import base64
import binascii
import re
from typing import Final, NamedTuple
from urllib.parse import unquote_to_bytes

from tailrace.server.guard.access.errors import CredentialsRefused, CredentialsRepeated
from tailrace.server.message import Request

__all__ = [
    "CREDENTIAL_BYTES_MAX", "QUERY_PARAMETER", "Credentials", "find_credentials",
    "parse_credentials",
]  # fmt: skip

QUERY_PARAMETER: Final = "access_token"
CREDENTIAL_BYTES_MAX: Final = 8192

# The name is only matched literally, without percent-encoding.
_IN_QUERY: Final = re.compile(rb"(?:^|&)access_token=([^&]*)")
_PARAMETER: Final = QUERY_PARAMETER.encode()
_READS: Final = ("GET", "HEAD")
_BASIC: Final = "send Authorization: Basic with base64 of name:token"


class Credentials(NamedTuple):
    """A token or a JWT, and whether it was in the URL."""

    text: str
    in_query: bool


def find_credentials(request: Request) -> bytes | None:
    """
    The raw credentials, if there are any: the value of the header, or `?` and the parameter's.

    Raises:
        CredentialsRepeated: There are more than one.
        CredentialsRefused: They are too large, or in the URL of a write.
    """
    found = request.headers.get(b"authorization")
    if _PARAMETER in request.query and (given := _IN_QUERY.findall(request.query)):
        if found is not None or len(given) > 1:
            raise CredentialsRepeated
        if request.method not in _READS:
            raise CredentialsRefused("a token in the URL is only accepted for GET and HEAD")
        found = b"?" + given[0]
    if found is None:
        return None
    if len(found) > CREDENTIAL_BYTES_MAX:
        raise CredentialsRefused("the credentials are too large")
    if request.repeated is not None and b"authorization" in request.repeated:
        raise CredentialsRepeated
    return found


def parse_credentials(found: bytes) -> Credentials:
    """
    Parse what `find_credentials` returned.

    Raises:
        CredentialsRefused: The form is unknown.
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
    """Tokens and JWTs are printable ASCII without spaces."""
    text = raw.decode("latin-1")
    if not text or not text.isascii() or not text.isprintable() or " " in text:
        raise CredentialsRefused("the credentials are neither a token nor a JWT")
    return text
