"""A picture as models take it: of a kind that they know, and no larger than they take it. Blocking.

What is small enough goes as it is, once it could be decoded: one that no model can read would fail each request that
shows it. Anything else is turned as its camera meant it, scaled down and written as JPEG. Its size is judged before it is
decoded, and one picture is decoded at a time: a small file can hold a huge picture.
"""

import io
import threading
from dataclasses import dataclass, field

IMAGE_CHARS_MAX = 5_000_000
"""Of base64, one picture: Anthropic's limit, and none of the others allows more."""
IMAGE_BYTES_MAX = IMAGE_CHARS_MAX // 4 * 3
SOURCE_BYTES_MAX = 64 * 1024 * 1024
SIDE_MAX = 2_000
"""Pixels. Models scale down what is larger, and refuse it where a request has many pictures."""
PIXELS_MAX = 40_000_000
JPEG_QUALITY = 85
_SIGNATURES = (
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF87a", "image/gif"),
    (b"GIF89a", "image/gif"),
)
_CONVERTED = (b"BM", b"II*\0", b"MM\0*")
"""BMP and TIFF. An ICO says of the picture in it what size it likes."""
_FORMATS = ("JPEG", "PNG", "GIF", "WEBP", "BMP", "TIFF")
_one_at_a_time = threading.Lock()


@dataclass(frozen=True, kw_only=True, slots=True)
class Picture:
    """`note` is empty where it is the file's own bytes."""

    type: str
    data: bytes = field(repr=False)
    note: str = ""


def image_type(head: bytes) -> str | None:
    """What the bytes are, whatever the name says: a kind that models know."""
    if head[:4] == b"RIFF" and head[8:12] == b"WEBP":
        return "image/webp"
    return next((media_type for signature, media_type in _SIGNATURES if head.startswith(signature)), None)


def fitted(data: bytes) -> Picture | None:
    """None for what is no picture, and for one that can neither be shown as it is nor be scaled."""
    kind = image_type(data[:16])
    if kind is None and not data.startswith(_CONVERTED):
        return None
    as_it_is = Picture(type=kind, data=data) if kind and len(data) <= IMAGE_BYTES_MAX else None
    try:
        from PIL import Image, ImageOps  # loaded with the first picture
    except ImportError:
        return as_it_is
    try:
        with _one_at_a_time, Image.open(io.BytesIO(data), formats=_FORMATS) as source:
            width, height = source.size
            if as_it_is and max(width, height) <= SIDE_MAX:
                source.load()
                return as_it_is
            if width * height > PIXELS_MAX:
                return None
            source.draft("RGB", (SIDE_MAX, SIDE_MAX))  # a JPEG is decoded small
            source.thumbnail((SIDE_MAX, SIDE_MAX))
            upright = ImageOps.exif_transpose(source).convert("RGBA")
            paper = Image.new("RGB", upright.size, "white")
            paper.paste(upright, mask=upright)
            written = io.BytesIO()
            paper.save(written, "JPEG", quality=JPEG_QUALITY)
            note = f", scaled from {width}x{height} to {paper.width}x{paper.height}"
            return Picture(type="image/jpeg", data=written.getvalue(), note=note)
    except Exception:  # noqa: BLE001 - bytes of strangers: a decoder may raise anything
        return None
