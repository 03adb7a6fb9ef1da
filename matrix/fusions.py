"""The places of a graph that a pass could rewrite, by the names that hypotheses and findings use.

`workers.insight` finds them. A name is that of the pass as `pass=NAME` says it.
"""

from __future__ import annotations

import re

CANDIDATES = {
    "gelu": "GELU spelt out with Erf",
    "fast_gelu": "GELU spelt out with Tanh",
    "quick_gelu": "x * sigmoid(1.702 x)",
    "bias_gelu": "an Add before a GELU",
    "layer_norm": "layer normalization spelt out with ReduceMean, Pow and Sqrt",
    "simplified_layer_norm": "RMS normalization spelt out",
    "skip_layer_norm": "an Add of two tensors before a layer normalization",
    "attention": "MatMul, Softmax, MatMul",
    "bias_softmax": "an Add before a Softmax",
    "matmul_add": "an Add of a constant after a MatMul",
    "matmul_activation": "an activation after a MatMul",
    "matmul_transpose": "a Transpose before a MatMul",
    "matmul_scale": "a Mul or Div by a scalar around a MatMul",
    "conv_bn": "a BatchNormalization after a Conv",
    "conv_add": "an Add of a constant after a Conv",
    "conv_mul": "a Mul by a constant after a Conv",
    "conv_activation": "an activation after a Conv",
    "conv_add_activation": "an Add of two tensors and an activation after a Conv",
    "pad": "a Pad before a Conv or a pooling",
    "gemm_activation": "an activation after a Gemm",
    "gemm_sum": "an Add after a Gemm",
    "gemm_transpose": "a Transpose before a Gemm",
    "slice_elimination": "more than 3 Slice operators",
    "expand_elimination": "more than 2 Expand operators",
    "unsqueeze_elimination": "an Unsqueeze of a constant",
    "concat_slice_elimination": "a Slice of a Concat",
    "transpose_optimizer": "more than 10 Transpose operators",
    "highdimRTR_lowdimRTR": "Reshape, Transpose, Reshape through more than 4 dimensions",
}
CONCERNS: dict[str, tuple[str, ...]] = {
    "gelu": ("Erf", "Gelu", "BiasGelu"),
    "bias_gelu": ("Erf", "Gelu", "BiasGelu"),
    "fast_gelu": ("Tanh", "FastGelu"),
    "quick_gelu": ("Sigmoid", "QuickGelu"),
    "layer_norm": ("LayerNormalization", "ReduceMean"),
    "skip_layer_norm": ("LayerNormalization", "SkipLayerNormalization"),
    "attention": ("Softmax", "Attention"),
    "bias_softmax": ("Softmax", "BiasSoftmax"),
    "matmul_transpose": ("Transpose",),
    "transpose_optimizer": ("Transpose",),
    "highdimRTR_lowdimRTR": ("Transpose", "Reshape"),
    "conv_bn": ("Conv", "BatchNormalization"),
    "conv_activation": ("Conv", "Relu"),
}
"""The operators in whose time a pass could save something."""

_LEVEL = re.compile(r"L[12]$")
_WORDS = re.compile(r"[A-Z]+(?=[A-Z][a-z]|$|_)|[A-Z]?[a-z]+|[A-Z]+|\d+")
_TAILS = ("_fusion", "_transformer")


def pass_name(name: str) -> str:
    """A pass by its short name: `GeluFusionL2` and `gelu_fusion` are both `gelu`."""
    text = name
    if "_" not in name or not name.islower():
        plain = _LEVEL.sub("", name).replace("MatMul", "Matmul")
        text = "_".join(_WORDS.findall(plain)).casefold() if name[:1].isupper() else name
    for tail in _TAILS:
        text = text.removesuffix(tail)
    return text
