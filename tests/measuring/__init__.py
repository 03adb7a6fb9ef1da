"""Noise for tests of verdicts: simulated sessions, and sessions recorded on a busy machine."""
