"""What is known of families of models, beside what Optimum's exporter knows of them.

`architectures.toml` has a row for every architecture (a model type of Transformers). A row with
`inputs` is all that a model needs whose graph is one call of its `forward`, a row with `like` all
that a relative of an architecture of Optimum's needs: `generic.py` makes an ONNX configuration of
either. A row with `module` names a file of this package, one for every family that needs code; it
has any of these:

    PATCHES              attributes for the configurations of its rows: `_MODEL_PATCHER` and
                         `PATCHING_SPECS`
    register()           registers Optimum's `OnnxConfig` classes (inputs, outputs, patches as a
                         `ModelPatcher`, `DummyInputGenerator`s: what verification feeds the model)
    parts(model, task)   the component graphs of a model and how each is called, or None
    joins(model, task)   how outputs of components are joined to results

    keys of a row        meaning
    tasks                what the model is exported for
    module               the family file, without `.py`
    like                 an architecture of Optimum's whose configuration serves this one too
    inputs               names in `inputs.py`; for single tasks as a table `task = [...]`
    outputs              names of outputs, likewise; without it Optimum's of the task
    classes              task = class, where Transformers' auto classes have none: its own, or
                         `package.Class`
    fixed                true, or a list of tasks: the trace holds for the sizes of the export only
    axes                 input = its axes, where they are not those of `inputs.AXES`
    sizes                sizes of inputs that no configuration tells
    exporter             `dynamo` where TorchScript cannot trace the model; part of the key

Other packages add families by the same file (`matrix.extensions`): the entry point group
`modelmill.architectures` names a package that has an `architectures.toml`, whose rows' modules are
modules of that package. Its version is in the key of what it exports.

Importing this package costs nothing; `register` imports what it registers.
"""
