"""What a request can be refused for because of who sent it (§10.1, §10.2)."""

from tailrace.protocol.errors import Refusal

__all__ = [
    "CredentialsRefused",
    "CredentialsRepeated",
    "CrossOriginRefused",
    "Forbidden",
    "KeysNotReady",
    "Unauthenticated",
]


class Unauthenticated(Refusal):
    """No credentials, and not everybody may do this (§10.1)."""

    status = 401
    code = "unauthenticated"
    title = "Credentials needed"

    @property
    def detail(self) -> str:
        return (
            "send a token as Authorization: Bearer <token>; whoever runs this server makes one "
            "with tailrace token new"
        )


class CredentialsRefused(Refusal):
    """Credentials that are not good, or not good any more."""

    status = 401
    code = "credentials-refused"
    title = "Credentials refused"

    def __init__(self, reason: str) -> None:
        # Never what was sent: this is answered, and may be logged.
        super().__init__(reason)
        self.reason = reason

    @property
    def detail(self) -> str:
        return f"{self.reason}: get another token and send that"


class CredentialsRepeated(Refusal):
    """Credentials in more than one place: which were meant?"""

    code = "credentials-repeated"
    title = "Credentials in several places"

    @property
    def detail(self) -> str:
        return (
            "send credentials once: one Authorization header, or one access_token in the query, "
            "not both"
        )


class Forbidden(Refusal):
    """A principal that may not do this. Says nothing of whether what it named is there."""

    status = 403
    code = "forbidden"
    title = "Not granted"

    def __init__(self, principal: str, operation: str, place: str) -> None:
        super().__init__(principal, operation, place)
        self.principal = principal
        self.operation = operation
        self.place = place

    @property
    def detail(self) -> str:
        return f"{self.principal} has no grant of {self.operation} on {self.place}"


class CrossOriginRefused(Refusal):
    """A page of another origin asks a server without access control what there is."""

    status = 403
    code = "cross-origin-refused"
    title = "Not for pages of other origins"

    @property
    def detail(self) -> str:
        return (
            "without access control (--access) this is answered to programs and to the server's "
            "own page, not to pages of other origins"
        )


class KeysNotReady(Refusal):
    """The keys that JWTs are verified with are still being fetched."""

    status = 503
    code = "keys-not-ready"
    title = "Keys are being fetched"

    @property
    def detail(self) -> str:
        return "the key that this token was signed with is being looked for: retry in a second"
