"""Access control, limits, and the address of a client behind proxies."""
