"""Builds scikit-learn and XGBoost models from files that contain only data: nothing is unpickled.

    source --export--> model.onnx          float32 rows `features`, no ZipMap; its results are
           |                               compared with the model's own predictions
           +--inputs---> fit.npz, choose.npz, judge/NN.npz   (`workers.samples`)
           +--optimize-> model.onnx        ONNX Runtime graph passes, as in the optimum engine

A `.skops` file names the types of its objects; only types in a fixed list (`trusted.py`) are
instantiated. XGBoost reads its own `.json` and `.ubj` files. Pickles are refused. The graphs
consist mostly of operators of ai.onnx.ml, so cells are fp32 and only for ONNX Runtime's CPU
provider.

Importing this package costs nothing: all libraries are imported inside functions.
"""

from workers.tabular_engine.engine import TabularEngine

__all__ = ["TabularEngine"]
