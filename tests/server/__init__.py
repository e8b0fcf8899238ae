"""The protocol end to end: one test for each rule, over every way of running the server."""
