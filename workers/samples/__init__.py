"""Samples: inputs of a model as its users have them, and the three parts they are used in.

    datasets    the catalog's `dataset`, in all its forms
    processors  the model's own tokenizer, image processor or feature extractor on `material`
    synthetic   values where nothing real exists
    loops       prompts, steps and caches of decoders
    parts       fit (calibration), choose (between attempts), judge (the verdict): never overlapping
    files       the files of the stage `inputs`

An engine takes the first of these that the model has: its dataset, its processor, synthetic values.
The kind of the samples goes into the manifest, because only a dataset and a processor make values
that say something of a trained model.

The room runs inside engine hosts, also in the interpreter of another environment: torch,
Transformers, Pillow and ONNX Runtime are imported inside functions, and no engine is.
"""
