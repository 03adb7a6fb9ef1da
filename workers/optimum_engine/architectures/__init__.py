"""Families of models that Optimum's exporter lacks or exports differently.

`architectures.toml` has a row for every architecture (a model type of Transformers). If the graph
of a model is one call of its `forward`, a row with `inputs` is enough; if Optimum's configuration
of another architecture fits the model, a row with `like` is enough. `generic.py` makes an ONNX
configuration from either. A row with `module` names a file of this package, one for every family
that needs code, which may define:

    PATCHES              attributes for the configurations of its rows: `_MODEL_PATCHER` and
                         `PATCHING_SPECS`
    register()           registers Optimum's `OnnxConfig` classes (inputs, outputs, patches as a
                         `ModelPatcher`, `DummyInputGenerator`s: what verification feeds the model)
    parts(model, task)   the component graphs of a model and how each is called, or None
    joins(model, task)   how outputs of components are joined to results

    keys of a row        meaning
    tasks                the tasks that the model is exported for
    module               the family file, without `.py`
    like                 an architecture of Optimum's whose configuration also fits this one
    inputs               names in `inputs.py`, or a table `task = [...]` if they differ by task
    outputs              names of outputs, likewise; default: Optimum's outputs for the task
    classes              task = class, if Transformers' auto classes have none: a class of
                         Transformers, or `package.Class`
    fixed                true, or a list of tasks: the trace is valid only for the exported sizes
    axes                 input = its axes, if they differ from those in `inputs.AXES`
    sizes                sizes of inputs that no configuration gives
    exporter             `dynamo` if TorchScript cannot trace the model; part of the key

Other packages add families with the same kind of file (`matrix.extensions`): the entry point group
`modelmill.architectures` names a package that has an `architectures.toml`, whose rows name
modules of that package. The version of the package is part of the key of its exports.

Importing this package costs nothing; `register` imports what it registers.
"""
