"""Where models come from, shared by all engines: hub, folders, seeds, ready ONNX files."""
