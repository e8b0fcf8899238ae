"""Subscriptions: their configuration and links, and the leases of their wakes."""
