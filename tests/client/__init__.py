"""The client: its parser, its flow, and both shells against real servers."""
