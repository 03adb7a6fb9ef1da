"""The verification ladder: judging what was seen of a package against what its cell claims.

Pure: `claim` says what is claimed, `seen` holds what inspection and runtimes have told, each rung
is a function of the two, `verdict` says what the rungs come to. Nothing is run or read here.
"""
