"""A picture as models accept it: of a format that they read, and no larger than they allow. Blocking.

A picture that is small enough is passed on unchanged after a test decode: one that no model can read would fail each
request that shows it. Any other is rotated by its EXIF data, scaled down and written as JPEG. The size is checked
before decoding, and one picture is decoded at a time, since a small file can hold a huge picture. Its memory is
returned immediately.
"""

import ctypes
import io
import threading
import zlib
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache

IMAGE_CHARS_MAX = 5_000_000
"""Maximum base64 of one picture: Anthropic's limit, and none of the others allows more."""
IMAGE_BYTES_MAX = IMAGE_CHARS_MAX // 4 * 3
SOURCE_BYTES_MAX = 64 * 1024 * 1024
SIDE_MAX = 2_000
"""Pixels. Models scale down larger pictures, and refuse them in a request with many pictures."""
PIXELS_MAX = 40_000_000
JPEG_QUALITY = 85
_PNG = b"\x89PNG\r\n\x1a\n"
_SIGNATURES = (
    (_PNG, "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF87a", "image/gif"),
    (b"GIF89a", "image/gif"),
)
_CONVERTED = (b"BM", b"II*\0", b"MM\0*")
"""BMP and TIFF. Not ICO, which can misstate the size of its picture."""
_FORMATS = ("JPEG", "PNG", "GIF", "WEBP", "BMP", "TIFF")
_one_at_a_time = threading.Lock()
_M_MMAP_THRESHOLD, _MAPPED_BYTES = -3, 1 << 20
"""Arguments of glibc's mallopt: blocks of this size or larger are mapped."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Picture:
    """`note` is empty if `data` is the unchanged file."""

    type: str
    data: bytes = field(repr=False)
    note: str = ""


def image_type(head: bytes) -> str | None:
    """Return the media type by the first bytes, if models read it."""
    if head[:4] == b"RIFF" and head[8:12] == b"WEBP":
        return "image/webp"
    return next((media_type for signature, media_type in _SIGNATURES if head.startswith(signature)), None)


def fitted(data: bytes) -> Picture | None:
    """Return the picture for a model; None if it is no picture, or can neither be shown unchanged nor be scaled."""
    kind = image_type(data[:16])
    if kind is None and not data.startswith(_CONVERTED):
        return None
    as_it_is = Picture(type=kind, data=data) if kind and len(data) <= IMAGE_BYTES_MAX else None
    try:
        import PIL.Image  # noqa: F401 - loaded with the first picture
    except ImportError:
        return as_it_is
    _give_memory_back()
    try:
        return _decoded(data, as_it_is)
    except Exception:  # noqa: BLE001 - untrusted bytes: a decoder may raise anything
        sound = without_broken_chunks(data)
    if sound == data:
        return None
    try:
        return _decoded(sound, as_it_is and Picture(type=as_it_is.type, data=sound, note=", without damaged metadata"))
    except Exception:  # noqa: BLE001 - as above
        return None


def unshown(data: bytes) -> str:
    """Return why `fitted` returns None."""
    if image_type(data[:16]) is None and not data.startswith(_CONVERTED):
        return "it is of no kind that models know"
    from PIL import Image

    try:
        with Image.open(io.BytesIO(data), formats=_FORMATS) as source:
            is_large = source.width * source.height > PIXELS_MAX
    except (Image.DecompressionBombError, Image.DecompressionBombWarning):
        is_large = True
    except Exception:  # noqa: BLE001 - as in `fitted`
        is_large = False
    return f"it has more than {PIXELS_MAX // 10**6} megapixels" if is_large else "it is damaged"


def without_broken_chunks(data: bytes) -> bytes:
    """Remove the ancillary chunks of a PNG that have a wrong checksum: no decoder needs them, and some refuse the whole
    picture for one. Anything else is returned unchanged."""
    if not data.startswith(_PNG):
        return data
    kept, offset = [_PNG], len(_PNG)
    while offset + 12 <= len(data):
        end = offset + 12 + int.from_bytes(data[offset : offset + 4], "big")
        name, chunk = data[offset + 4 : offset + 8], data[offset:end]
        is_ancillary = bool(name[0] & 0x20)  # PNG specification, 5.4: the first letter is small
        if not is_ancillary or zlib.crc32(chunk[4:-4]) == int.from_bytes(chunk[-4:], "big"):
            kept.append(chunk)
        offset = end
    return b"".join((*kept, data[offset:]))


def _decoded(data: bytes, as_it_is: Picture | None) -> Picture | None:
    from PIL import Image, ImageOps

    with _one_at_a_time, Image.open(io.BytesIO(data), formats=_FORMATS) as source:
        width, height = source.size
        if as_it_is and max(width, height) <= SIDE_MAX:
            source.load()
            return as_it_is
        if width * height > PIXELS_MAX:
            return None
        source.draft("RGB", (SIDE_MAX, SIDE_MAX))  # a JPEG is decoded small
        small: Image.Image = source
        if source.mode in ("RGBA", "LA"):  # scaled whole, it would be copied whole
            factor = max(1, max(source.size) // SIDE_MAX)
            small = Image.merge(source.mode, [source.getchannel(it).reduce(factor) for it in source.getbands()])
            small.info = source.info
        small.thumbnail((SIDE_MAX, SIDE_MAX))
        upright = ImageOps.exif_transpose(small).convert("RGBA")
        paper = Image.new("RGB", upright.size, "white")
        paper.paste(upright, mask=upright)
        written = io.BytesIO()
        paper.save(written, "JPEG", quality=JPEG_QUALITY)
        note = f", scaled from {width}x{height} to {paper.width}x{paper.height}"
        return Picture(type="image/jpeg", data=written.getvalue(), note=note)


@cache
def _give_memory_back() -> None:
    """Make the process return each large block when it is freed. Otherwise every thread's arena keeps the largest
    picture it has decoded. Other C libraries have no such setting, and need none."""
    with suppress(AttributeError):
        ctypes.CDLL(None).mallopt(_M_MMAP_THRESHOLD, _MAPPED_BYTES)
