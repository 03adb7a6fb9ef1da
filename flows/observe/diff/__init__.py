"""Comparing two sweeps from their state: which cells differ, and why.

    outcomes of both -- comparison --> a change per cell -- inputs --> which inputs differ

Cells are matched by their ids, which hold no stamp. Content is compared by tree digest; if it
differs, the recorded stage keys of both builds say which input changed.
"""
