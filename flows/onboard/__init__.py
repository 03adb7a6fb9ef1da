"""Which models can be built, and what is missing for the others.

`coverage` answers for a whole catalog before anything is downloaded: `matrix.coverage` judges each
entry by its model type and task; `configs.py` adds the entry's config.json where that is on this
machine (a folder, or a cache of the Hub that somebody filled), because it knows the architecture
better than the catalog; `totals.py` counts. No network, no exporter, no torch.
"""
