"""The refusals of subscriptions (today.md §3). Their codes are the protocol's own."""

from tailrace.protocol.errors import Refusal

__all__ = [
    "AlreadyClaimed",
    "Fenced",
    "InvalidAck",
    "InvalidSubscription",
    "NoPendingWork",
    "SubscriptionExists",
    "SubscriptionNotFound",
]


class InvalidSubscription(Refusal):
    """The configuration of a subscription, or a request to it, is not valid."""

    code = "INVALID_REQUEST"
    title = "Invalid subscription request"
    message = "{reason}"
    reason: str


class SubscriptionNotFound(Refusal):
    """The subscription was never created, or was deleted."""

    status = 404
    code = "SUBSCRIPTION_NOT_FOUND"
    title = "Subscription not found"
    message = "no subscription of this id: create it with PUT"


class SubscriptionExists(Refusal):
    """PUT of a subscription that exists with another configuration."""

    status = 409
    code = "SUBSCRIPTION_ALREADY_EXISTS"
    title = "Subscription exists with another configuration"
    message = "the subscription exists with another configuration; it was not changed"


class Fenced(Refusal):
    """The wake has ended: its lease expired, it was done or released, or another one began."""

    status = 409
    code = "FENCED"
    title = "The wake is not the current one"
    message = "generation {generation} of this wake is not current: stop, and wait for a new wake"
    generation: int


class AlreadyClaimed(Refusal):
    """A worker holds the lease."""

    status = 409
    code = "ALREADY_CLAIMED"
    title = "Another worker holds the lease"
    message = "{current_holder!r} holds the lease of generation {generation}"
    current_holder: str
    generation: int


class NoPendingWork(Refusal):
    """A claim while all cursors are at their tails."""

    status = 409
    code = "NO_PENDING_WORK"
    title = "No pending work"
    message = "all streams of the subscription are acknowledged up to their tails"


class InvalidAck(Refusal):
    """An acknowledged offset is not one that the cursor can move to."""

    status = 409
    code = "INVALID_OFFSET"
    title = "Offset cannot be acknowledged"
    message = "{stream}: {reason}; nothing was acknowledged"
    stream: str
    reason: str
