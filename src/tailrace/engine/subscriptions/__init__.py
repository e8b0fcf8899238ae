"""Subscriptions: durable cursors over streams, and the wakes that appends owe them."""
