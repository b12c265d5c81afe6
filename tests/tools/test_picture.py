"""Pictures for models: a PNG with a damaged ancillary chunk is shown without it, and what is not shown has a reason."""

import io
import struct
import zlib

import pytest
from PIL import Image

from tools.picture import PIXELS_MAX, fitted, unshown


def png(*chunks: tuple[bytes, bytes, bool], size: tuple[int, int] = (3, 2)) -> bytes:
    """A picture with these chunks behind its header: name, data, and whether the checksum is right."""
    file = io.BytesIO()
    Image.new("RGB", size, "red").save(file, "PNG")
    data = file.getvalue()
    header = data.index(b"IHDR") + 4 + 13 + 4
    made = b"".join(
        struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body) ^ (not right))
        for name, body, right in chunks
    )
    return data[:header] + made + data[header:]


BROKEN = {
    "text": [(b"tEXt", b"Comment\0x", False)],
    "colour profile": [(b"iCCP", b"x\0\0data", False)],
    "size in metres": [(b"pHYs", b"\0" * 9, False)],
    "a sound one and a broken one": [(b"tEXt", b"Comment\0x", True), (b"tIME", b"\0" * 7, False)],
}


@pytest.mark.parametrize("chunks", BROKEN.values(), ids=BROKEN)
def test_png_with_a_broken_ancillary_chunk_is_shown_without_it(chunks: list[tuple[bytes, bytes, bool]]) -> None:
    picture = fitted(png(*chunks))
    assert picture is not None
    assert picture.type == "image/png"
    shown = Image.open(io.BytesIO(picture.data))
    shown.load()
    assert (shown.size, shown.getpixel((0, 0))) == ((3, 2), (255, 0, 0))


def test_a_sound_png_stays_as_it_is() -> None:
    data = png((b"tEXt", b"Comment\0x", True))
    picture = fitted(data)
    assert picture is not None
    assert (picture.data, picture.note) == (data, "")


def test_a_picture_that_is_not_shown_has_its_reason() -> None:
    broken = bytearray(png())
    at = broken.index(b"IDAT")
    broken[at + 6 : at + 12] = b"\0" * 6
    huge = (
        b"\x89PNG\r\n\x1a\n"
        + struct.pack(">I", 13)
        + (head := b"IHDR" + struct.pack(">IIBBBBB", 50_000, 50_000, 8, 2, 0, 0, 0))
    )
    huge += struct.pack(">I", zlib.crc32(head))
    huge += struct.pack(">I", 0) + b"IDAT" + struct.pack(">I", zlib.crc32(b"IDAT"))
    for data, reason in (
        (b"GIF89a", "it is damaged"),
        (bytes(broken), "it is damaged"),
        (b"\0" * 40, "it is of no kind that models know"),
        (huge, f"it has more than {PIXELS_MAX // 10**6} megapixels"),
    ):
        assert fitted(data) is None
        assert unshown(data) == reason
