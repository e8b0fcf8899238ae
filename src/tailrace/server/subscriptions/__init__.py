"""Subscriptions beside their handlers: webhooks, their signatures, lease tokens, and owners."""
