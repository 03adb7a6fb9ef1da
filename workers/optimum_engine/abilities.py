"""The tables of what the installed exporter supports and of what Transformers has.

`python -m workers.optimum_engine.abilities` writes them; plans and `coverage` read them without
either library, and a test fails when they are outdated.
"""

from __future__ import annotations

import json
from typing import Any

from matrix.abilities import DATA
from matrix.coverage import HEADS
from workers.optimum_engine.architectures import families
from workers.sources.load import tasks_manager

CLASSES = {
    "AUDIO_CLASSIFICATION": "audio-classification",
    "AUDIO_FRAME_CLASSIFICATION": "audio-frame-classification",
    "AUDIO_XVECTOR": "audio-xvector",
    "CAUSAL_LM": "text-generation",
    "CTC": "automatic-speech-recognition",
    "DEPTH_ESTIMATION": "depth-estimation",
    "DOCUMENT_QUESTION_ANSWERING": "document-question-answering",
    "IMAGE_CLASSIFICATION": "image-classification",
    "IMAGE_SEGMENTATION": "image-segmentation",
    "IMAGE_TEXT_TO_TEXT": "image-text-to-text",
    "IMAGE_TO_IMAGE": "image-to-image",
    "INSTANCE_SEGMENTATION": "image-segmentation",
    "KEYPOINT_DETECTION": "keypoint-detection",
    "KEYPOINT_MATCHING": "keypoint-matching",
    "MASKED_LM": "fill-mask",
    "MASK_GENERATION": "mask-generation",
    "MULTIPLE_CHOICE": "multiple-choice",
    "OBJECT_DETECTION": "object-detection",
    "QUESTION_ANSWERING": "question-answering",
    "RETRIEVAL": "visual-document-retrieval",
    "SEMANTIC_SEGMENTATION": "image-segmentation",
    "SEQUENCE_CLASSIFICATION": "text-classification",
    "SEQ_TO_SEQ_CAUSAL_LM": "text2text-generation",
    "SPEECH_SEQ_2_SEQ": "automatic-speech-recognition",
    "TABLE_QUESTION_ANSWERING": "table-question-answering",
    "TEXT_TO_SPECTROGRAM": "text-to-audio",
    "TEXT_TO_WAVEFORM": "text-to-audio",
    "TIME_SERIES_PREDICTION": "time-series-forecasting",
    "TOKEN_CLASSIFICATION": "token-classification",
    "UNIVERSAL_SEGMENTATION": "image-segmentation",
    "VIDEO_CLASSIFICATION": "video-classification",
    "VISION_2_SEQ": "image-to-text",
    "VISUAL_QUESTION_ANSWERING": "visual-question-answering",
    "ZERO_SHOT_IMAGE_CLASSIFICATION": "zero-shot-image-classification",
    "ZERO_SHOT_OBJECT_DETECTION": "zero-shot-object-detection",
}
"""Tables of Transformers' auto classes -> the task of their heads."""


def table() -> dict[str, Any]:
    """Tasks, their synonyms, and the tasks of every architecture that Transformers can make."""
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING_NAMES

    families.register()
    manager = tasks_manager()
    architectures = {}
    for name in CONFIG_MAPPING_NAMES:
        try:
            tasks = manager.get_supported_tasks_for_model_type(
                name, "onnx", library_name="transformers"
            )
        except KeyError:
            continue
        architectures[name] = sorted(tasks)
    return {
        "tasks": sorted(manager.get_all_tasks()),
        "synonyms": dict(sorted(manager._SYNONYM_TASK_MAP.items())),
        "architectures": dict(sorted(architectures.items())),
    }


def heads() -> dict[str, list[str]]:
    """The tasks for which Transformers itself has a model class, by architecture."""
    from transformers.models.auto import modeling_auto
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING_NAMES

    found: dict[str, set[str]] = {name: set() for name in CONFIG_MAPPING_NAMES}
    for architecture in modeling_auto.MODEL_MAPPING_NAMES:
        found.setdefault(architecture, set()).add("feature-extraction")
    for name, task in CLASSES.items():
        for architecture in getattr(modeling_auto, f"MODEL_FOR_{name}_MAPPING_NAMES"):
            found.setdefault(architecture, set()).add(task)
    return {name: sorted(tasks) for name, tasks in sorted(found.items())}


def main() -> None:
    """Write the tables."""
    DATA.mkdir(exist_ok=True)
    for file, content in ((DATA / "optimum.json", table()), (HEADS, heads())):
        file.write_text(json.dumps(content, indent=1) + "\n", encoding="ascii", newline="\n")


if __name__ == "__main__":
    main()
