"""One module per command: its arguments, and a `run` that returns the exit code.

Command modules import nothing heavy at the top: every start of the command line imports them all.
"""
