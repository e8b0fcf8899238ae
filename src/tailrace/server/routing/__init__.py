"""Routing: what a path names, and the table of routes."""
