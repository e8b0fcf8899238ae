"""Reads streams as DataFrames: a driver plans ranges of offsets, and tasks read them."""
