"""The client: its parser, its flow, and both clients against real servers."""
