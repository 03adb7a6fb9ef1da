"""Models of scikit-learn and XGBoost, from files that hold data alone: nothing is unpickled.

    source --export--> model.onnx          float32 rows `features`, no ZipMap; what it computes is
           |                               compared with the model's own predictions
           +--inputs---> inputs.npz        seeded rows of plausible values, or the catalog's dataset
           +--optimize-> model.onnx        ONNX Runtime graph passes, as in the optimum engine

A `.skops` file names the types of its objects; only those of a fixed list (`trusted.py`) are
made. XGBoost reads its own `.json` and `.ubj` files. Pickles are refused. What is exported is
operators of ai.onnx.ml for the most part, so cells are for ONNX Runtime's CPU alone, in fp32.

Importing this package costs nothing: all libraries are imported inside functions.
"""

from workers.tabular_engine.engine import TabularEngine

__all__ = ["TabularEngine"]
