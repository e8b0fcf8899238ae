"""The benchmarks still run; what they measure is for `make bench`."""
