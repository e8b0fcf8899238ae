"""
Both shells against the reference server of the protocol (npm's `@durable-streams/server`).

What the client promises holds on another server than ours: one with other offsets and other texts,
one answer for a whole catch-up, and several data events before a control event.
"""
