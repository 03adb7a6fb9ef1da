"""A sweep on this machine, from its plan to its exit code, and its resume."""
