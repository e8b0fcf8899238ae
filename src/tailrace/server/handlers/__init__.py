"""Handlers: one module for each kind of resource."""
