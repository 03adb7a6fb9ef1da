"""Sweeps for tests: the real command in a folder, and a sweep without a child process."""
