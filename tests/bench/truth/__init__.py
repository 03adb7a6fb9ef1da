"""Whether packages that are called verified do what their models do.

Trained models from the package indexes (`packages.toml`), their calibration data made as users make
theirs, held-out inputs with known answers that no build ever sees, and the real command line:

    python -m tests.bench.truth [--only NAME] [--cache DIR] [--out FILE]     the table of models
    python -m tests.bench.truth --cost COMMIT                  processor time against a commit

`packages.py` fetches, `pictures.py` and `sounds.py` make material, `subjects/` holds the models,
`sweeping.py` builds through the command line and opens what was published.
Packages that cannot be had are named and left out. Needs Pillow.
"""
