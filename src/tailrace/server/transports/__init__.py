"""Transports: each drives the service, so that all behave the same."""
