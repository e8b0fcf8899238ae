"""Requests of operators: overview, backup, health and metrics."""
