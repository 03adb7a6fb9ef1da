"""Classifies an image with a package: FOLDER FILE."""

import json
import sys
from pathlib import Path

import numpy as np
import onnxruntime
from PIL import Image

folder, file = Path(sys.argv[1]), sys.argv[2]
session = onnxruntime.InferenceSession(folder / "model.onnx")
(pixels,) = session.get_inputs()
how = json.loads((folder / "preprocessor_config.json").read_text("utf-8"))
size = (how["size"]["width"], how["size"]["height"])
image = np.asarray(Image.open(file).convert("RGB").resize(size, how.get("resample")), np.float32)
image = (image * how["rescale_factor"] - how["image_mean"]) / how["image_std"]
feeds = {pixels.name: image.transpose(2, 0, 1)[None].astype(np.float32)}
logits = session.run(None, feeds)[0]
labels = json.loads((folder / "config.json").read_text("utf-8"))["id2label"]
print(labels[str(logits[0].argmax())])
