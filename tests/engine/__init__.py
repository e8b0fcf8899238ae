"""The engine's own rules: group commit, failure, eviction, the stored layout."""
