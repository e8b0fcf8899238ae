"""What a team runs: streams to tables, tables to streams, and streams folded into snapshots."""
