"""Packages made by hand, to be verified."""
