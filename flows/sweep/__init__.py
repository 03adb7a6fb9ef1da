"""A sweep from its plan to its exit code, on this machine."""
