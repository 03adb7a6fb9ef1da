"""Benchmarks: what a user names to be measured, leased cells, and how results are kept."""
