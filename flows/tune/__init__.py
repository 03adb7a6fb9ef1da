"""Finding the build that is best on a device, and proving it.

`knowledge.py` is what is known already: the findings that come with modelmill, and those of the
user's own folder with the evidence in it. `policies.py` holds the
rules by which sessions are judged: those of older tools, and ours. `recorded.py` reads what those
tools measured, `replay.py` grades it both ways.

`insight.py` gathers the facts of a model, `ordering.py` makes of them and of what is known the list
of what is tried, in which order and why.
"""
