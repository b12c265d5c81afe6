"""What a Gemini model's name says about how it must be spoken to: from the third generation on, thought signatures are
demanded on calls and pictures may stand inside results.

An alias without a number (`gemini-flash-latest`) is always the newest, so only the names of old models are known here.
"""

import re

PLACEHOLDER_SIGNATURE = "skip_thought_signature_validator"
"""What a call may carry in place of its own signature, where another model made it or it is long past."""

SPOKEN_IMAGES = frozenset({"image/png", "image/jpeg", "image/webp", "image/heic", "image/heif"})
"""What Gemini takes as a picture; GIF is not among them."""


def signs(model: str) -> bool:
    """Whether the first call of each step must have a signature; those models also take pictures in results."""
    return re.match(r"gemini-(?![12](?:\.|-|$))", _bare(model)) is not None


def always_thinks(model: str) -> bool:
    """2.5 Pro takes a small budget for thinking, but not none."""
    return _bare(model).startswith("gemini-2.5-pro")


def resource(model: str) -> str:
    """The model as the path names it: `models/…`, or `tunedModels/…` as it was given."""
    return model if model.startswith(("models/", "tunedModels/")) else f"models/{model}"


def _bare(model: str) -> str:
    return model.rpartition("/")[2]
