"""Refusals of the subscription API that the engine does not know; codes are the protocol's own."""

from tailrace.protocol.errors import Refusal

__all__ = ["TokenExpired", "TokenInvalid", "WebhookUrlRejected"]


class TokenInvalid(Refusal):
    """A callback, ack or release without the token of its lease."""

    status = 401
    code = "TOKEN_INVALID"
    title = "Token missing or invalid"
    message = (
        "send the token of this wake or claim as Authorization: Bearer <token>: it is "
        "callback_token of the webhook, or token of the claim"
    )


class TokenExpired(Refusal):
    """The token of a lease is too old."""

    status = 401
    code = "TOKEN_EXPIRED"
    title = "Token expired"
    message = "the token has expired: continue with the next wake, or claim again"


class WebhookUrlRejected(Refusal):
    """The server does not send webhooks to this URL."""

    code = "WEBHOOK_URL_REJECTED"
    title = "Webhook URL rejected"
    message = "webhook.url: {reason}"
    reason: str
