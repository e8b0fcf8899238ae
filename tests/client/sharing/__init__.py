"""
Shared clients and their leftovers: threads, loops, cancellations, connections.

pytest makes every warning an error, also those of the garbage collector: a socket, a session or a
coroutine that was not closed fails its test.
"""
