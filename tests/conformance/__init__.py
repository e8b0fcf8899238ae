"""Runs the public conformance suite of the protocol against real servers."""
