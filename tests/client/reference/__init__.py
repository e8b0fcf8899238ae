"""
Both clients against the reference server of the protocol (npm's `@durable-streams/server`).

The client works with another server: one with other offsets and other texts, one response for a
whole catch-up, and several data events before a control event.
"""
