"""One module per command: `add` for its arguments, and `run`, which returns the exit code, if any.

A module is imported when its command is parsed, so what only `run` needs is imported in `run`: a
help text loads no feed and no database.
"""
