"""Facts about the graphs of a model, for whoever decides what is worth trying.

`facts.py` counts operators and open dimensions, `candidates.py` finds the places that passes could
rewrite, each with the names of nodes as evidence; `view.py` is the graph as both look at it. All of
it runs in the host process that inspects models, where onnx is imported.
"""
