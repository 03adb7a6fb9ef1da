"""Comparing two sweeps from what the state recorded: which cells fare differently, and why.

    outcomes of both -- comparison --> a change per cell -- inputs --> what it is made of differs

Cells are matched by their ids, which hold no stamp. Content is compared by tree digest; where it
differs, the parts of the stage keys of both builds say which input it was.
"""
