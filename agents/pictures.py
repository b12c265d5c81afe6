"""Which pictures of a history may be sent: the newest that fit, under the type that their bytes have.

A line of text stands for every other one, so that the model knows that there was something to see.
"""

import base64
import binascii
from dataclasses import replace

from agents.messages import AssistantMessage, Message, Text, UserPart, with_parts
from agents.providers.payload import well_formed
from tools.read import image_type
from tools.tool import Image

IMAGES_MAX = 20
IMAGE_CHARS_MAX = 5_000_000
"""Of base64, one picture: Anthropic's limit, and none of the others allows more."""
IMAGE_CHARS_TOTAL_MAX = 20_000_000
"""Of base64, one request: well inside the 32 MB that a body may have."""


def with_fitting_pictures(messages: list[Message], images_max: int) -> list[Message]:
    """The newest pictures that fit; a line of text stands for the others, and for what is no picture."""
    count, chars = 0, 0
    kept: list[Message] = []
    for message in reversed(messages):
        if isinstance(message, AssistantMessage):
            kept.append(message)
            continue
        parts: list[UserPart] = []
        for part in reversed(message.content):
            if isinstance(part, Image):
                media_type = _media_type(part.data)
                fits = count < images_max and chars + len(part.data) <= IMAGE_CHARS_TOTAL_MAX
                if media_type is None or len(part.data) > IMAGE_CHARS_MAX or not fits:
                    parts.append(Text(text=f"[image: {well_formed(part.name or 'not shown')}]"))
                    continue
                count, chars = count + 1, chars + len(part.data)
                part = part if part.media_type == media_type else replace(part, media_type=media_type)
            parts.append(part)
        parts.reverse()
        kept.append(with_parts(message, parts))
    kept.reverse()
    return kept


def _media_type(data: str) -> str | None:
    """What the bytes say they are; None where they are no base64 of a picture that models take."""
    try:
        head = base64.b64decode(data[:24], validate=True)
    except (binascii.Error, ValueError):
        return None
    return image_type(head) if len(data) % 4 == 0 else None
