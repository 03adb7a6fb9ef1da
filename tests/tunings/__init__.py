"""Tunings without builds and processes: every build takes a time that a test chooses."""
