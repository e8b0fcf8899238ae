"""The command line: its words, its output, its exit codes."""
