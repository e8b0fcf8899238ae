"""
Streams on storage: the state machine, group commit and what is kept in memory.

`core.Engine` is the one implementation of those; a `base.Store` is where records lie, either
`memory.MemoryStore` or `rocks.RocksStore`.
"""
