"""Refusals of access control (§10.1, §10.2)."""

from tailrace.protocol.errors import Refusal

__all__ = [
    "CredentialsRefused", "CredentialsRepeated", "CrossOriginRefused", "Forbidden", "KeysNotReady",
    "Unauthenticated",
]  # fmt: skip


class Unauthenticated(Refusal):
    """The request has no credentials and needs them (§10.1)."""

    status = 401
    code = "unauthenticated"
    title = "Credentials needed"
    message = (
        "send a token as Authorization: Bearer <token>; the operator of this server makes one "
        "with tailrace token new"
    )


class CredentialsRefused(Refusal):
    """The credentials are invalid, unknown or expired."""

    status = 401
    code = "credentials-refused"
    title = "Credentials refused"
    message = "{reason}: get another token and send that"
    # Never contains the credentials: it goes into responses and may be logged.
    reason: str


class CredentialsRepeated(Refusal):
    """The request carries credentials more than once."""

    code = "credentials-repeated"
    title = "Credentials sent more than once"
    message = (
        "send credentials once: one Authorization header, or one access_token in the query, "
        "not both"
    )


class Forbidden(Refusal):
    """The principal has no grant for this. Does not reveal whether the resource exists."""

    status = 403
    code = "forbidden"
    title = "Not granted"
    message = "{principal} has no grant of {operation} on {location}"
    principal: str
    operation: str
    location: str


class CrossOriginRefused(Refusal):
    """A page of another origin requests data of a server without access control."""

    status = 403
    code = "cross-origin-refused"
    title = "Not for pages of other origins"
    message = (
        "without access control (--access) only programs and the server's own page may request "
        "this, not pages of other origins"
    )


class KeysNotReady(Refusal):
    """The keys that verify JWTs are still being fetched."""

    status = 503
    code = "keys-not-ready"
    title = "Keys are being fetched"
    message = "the key of this token is being fetched: retry in a second"
