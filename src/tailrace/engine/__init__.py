"""
Streams on storage: the state machine, group commit and a cache of states.

`engine.Engine` implements these over a `base.Store`, which stores records: either
`memory.MemoryStore` or `rocks.RocksStore`.
"""
