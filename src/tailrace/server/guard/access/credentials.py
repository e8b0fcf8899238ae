"""
The credentials of a request.

    Authorization: Bearer <token or JWT>
    Authorization: Basic <any name>:<token or JWT>        only the password counts
    ?access_token=<token or JWT>                          GET and HEAD only, with read grants only

The last form is for `EventSource`, which cannot send headers. URLs end up in browser histories, in
logs of proxies and in `Referer`, so such a token must not be able to change anything. More than one
credential is rejected (RFC 6750 §2): two components could each check a different one.

Basic is accepted but never requested: a browser that gets such a challenge stores the password, and
sends it with requests of other sites' pages.
"""

import base64
import binascii
import re
from typing import Final
from urllib.parse import unquote_to_bytes

from tailrace.server.guard.access.errors import CredentialsRefused, CredentialsRepeated
from tailrace.server.message import Request

__all__ = ["CREDENTIAL_BYTES_MAX", "find_credentials", "is_in_query", "parse_credentials"]

CREDENTIAL_BYTES_MAX: Final = 8192

# The name is only matched literally, without percent-encoding.
_IN_QUERY: Final = re.compile(rb"(?:^|&)access_token=([^&]*)")
_PARAMETER: Final = b"access_token"
_READS: Final = ("GET", "HEAD")
_BASIC: Final = "send Authorization: Basic with base64 of name:token"


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


def is_in_query(found: bytes) -> bool:
    """Whether `find_credentials` found them in the URL."""
    return found.startswith(b"?")


def parse_credentials(found: bytes) -> str:
    """
    The token or JWT in what `find_credentials` returned.

    Raises:
        CredentialsRefused: The form is unknown.
    """
    if is_in_query(found):
        return _text(unquote_to_bytes(found[1:]))
    scheme, _, rest = found.partition(b" ")
    match scheme.lower():
        case b"bearer":
            return _text(rest.strip(b" "))
        case b"basic":
            return _password(rest.strip(b" "))
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
