"""
What a client shares and what it leaves behind: threads, loops, cancellations, connections.

pytest makes every warning an error here, also of what the garbage collector finds: a socket, a
session or a coroutine that nobody closed fails the test that left it.
"""
