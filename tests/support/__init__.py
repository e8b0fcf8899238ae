"""Shared by tests: server processes, a raw HTTP client, a proxy and disks that inject faults."""
