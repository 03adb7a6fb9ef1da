"""Existing packages: read, checked, signed, verified and built again."""
