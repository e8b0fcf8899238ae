"""
Access control: the principal of a request, and its grants (§10.1, §10.2).

    access_file -> tokens, jwt_verifier (jwks) -> Access.identify(request) -> Principal
    routes (the operation that a request needs) -> admit -> Principal.may <- grants
"""

from tailrace.server.guard.access.access import Access, admit
from tailrace.server.guard.access.access_file import AccessFileInvalid
from tailrace.server.guard.access.grants import Operation
from tailrace.server.guard.access.principal import Principal

__all__ = ["Access", "AccessFileInvalid", "Operation", "Principal", "admit"]
