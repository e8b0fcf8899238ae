"""Limits of clients, quotas of buckets, places for waiters: on their own, and served."""
