"""The sources of models, shared by all engines: hub, folders, seeds, ready ONNX files."""
