"""The pure core, sentence by sentence of the protocol, and against a naive model."""
