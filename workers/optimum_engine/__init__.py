"""The default engine: Optimum exports, ONNX Runtime optimizes and quantizes, with no EP installed.

    source --export--> ./model.onnx            fp32, dynamic axes, config and tokenizer beside it
           |           or <component>/...      encoder/decoder, text/vision towers, ...
           |           or COMPONENT.onnx ...   with a cache: all weights in one file
           +--inputs---> fit.npz, choose.npz, judge/NN.npz   (`workers.samples`)
           +--optimize-> model.onnx            static shapes if asked, ONNX Runtime graph passes
           +--rewrites-> rewrites.json         what the provider's limits change in this graph
           +--quantize-> model.onnx            QDQ w8a16/w8a8, int8 or 4-bit weights
                                               (w8, w4, w4a16), fp16
           +--share----> COMPONENT.onnx ...    with a cache: all weights in one file

Weights beyond `model_file.EXTERNAL_THRESHOLD` go to one file
`model.onnx.data`. The export keeps the small files that a user needs to run the model (config,
tokenizer, preprocessor) in its top folder. The stages of a single model pass these files on. The
stages of a component do not get them, so the builder adds them to the package.

Importing this package costs nothing: torch, optimum and onnx are imported inside functions.
"""

from workers.optimum_engine.engine import OptimumEngine

__all__ = ["OptimumEngine"]
