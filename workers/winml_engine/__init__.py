"""The engine `winml`: winml-cli's own artifacts, with shared work done once.

    source --weights--> ./config.json ...     only for seeded random models: a folder like any other
       |   --config---> [c/]winml_build_config.json   what `winml config` resolves for the model
       |   --export---> [c/]model.onnx        the same for every target
       |   |--inputs--> [c/]judge/00.npz ...  samples for verification; calibration has its own
       +-->--optimize-> model.onnx            the loop of optimizer and static analyzer for a target
           --quantize-> model.onnx            calibrated QDQ or fp16

The last `model.onnx` (with `model.onnx.data` beside it where winml-cli writes external weights) has
the bytes that `winml build --no-compile --ep E -d D` writes for the same model on the same
machine. `[c/]` is a component folder of a composite model, in the layout of winml-cli's batch
script; a file there equals `<c>_model.onnx` of the command line. The export of a composite has a
composition record.

The package runs in the interpreter of winml-cli's own environment: it may use the standard
library, `workers.engine`, `matrix` and what is installed there. Importing it costs nothing.
`install` is the exception: it runs in our interpreter and makes that environment.
"""

from workers.winml_engine.engine import WinmlEngine

__all__ = ["WinmlEngine"]
