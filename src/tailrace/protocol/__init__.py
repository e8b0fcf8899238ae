"""
The Durable Streams Protocol as a pure state machine.

    decide(state, command, now) -> verdict, or a refusal      every rule of the protocol
    apply(state, record)        -> state                      deterministic

Nothing in this package knows HTTP, a clock, a file or asyncio: time and ids arrive as arguments.
"""
