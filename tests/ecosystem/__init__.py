"""Published clients of the protocol, unmodified, against both transports."""
