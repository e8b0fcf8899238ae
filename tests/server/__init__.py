"""The protocol end to end: each rule is tested on every transport, engine and surface."""
