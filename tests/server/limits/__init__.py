"""Limits of clients, quotas of buckets, shares of waiting readers: as units, and over HTTP."""
