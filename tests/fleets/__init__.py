"""Fleets for tests: servers, machines, and ways to hurt them."""
