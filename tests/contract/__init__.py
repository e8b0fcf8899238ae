"""One suite over every store, directly and through the engine."""
