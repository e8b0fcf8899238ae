"""
Measurements of Tailrace and of the reference server of the protocol.

Run ``python -m benchmarks``. Each module in :mod:`benchmarks.workloads` states the
question it answers.
"""
