"""Facts about the graph of a model, from which a tuning decides what is worth trying.

`facts.py` counts operators and open dimensions, and finds the places that passes could rewrite,
each with the names of nodes as evidence. All of it runs in
the host process that inspects models (`workers/verify/checker.py`), where onnx is imported. What is
known of a whole model, its session and its trace, is put together in `flows/tune/insight.py`.
"""
