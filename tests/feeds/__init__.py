"""Feeds under test: what the conformance suite needs to know of each."""
