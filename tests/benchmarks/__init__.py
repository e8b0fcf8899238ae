"""The benchmarks run; `make bench` measures."""
