"""How far the outputs of a graph are from a reference: the only comparison of values.

    outputs of the reference --> kept (a selection of rows, without what a mask hides)
                                   |
    outputs that are judged ------>+--> compare (error against what varies)
                                   +--> decisions (what a user of the task would see)

`compare.compare(found, wanted, ...)` gives a row of figures for every output; `compare.fault(row,
limit)` says in words why a row is too far, or nothing. Both take plain arrays. The figures are
rounded before anything is decided, so that two processors decide alike.

Error is measured against what varies: a constant that all outputs share does not make a wrong
output look right, and an offset that is added to all of them is an error. Engines and runtimes use
this package in their own processes: NumPy is imported inside functions.
"""
