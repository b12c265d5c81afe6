"""PDF by PDFium: text in the order of the page, and scanned pages as pictures."""

import io
from itertools import islice
from typing import Any

from tools.documents.layout import PlacedText, with_tables
from tools.documents.pages import Pages, UnreadableDocument

SCAN_CHARS_MAX = 40
"""A page with a picture and no more text than this, such as its number, is a scan."""
SIDE_PIXELS = 1_568
"""The longest side of a page's picture: models scale down what is larger."""
JPEG_QUALITY = 80
RUNS_MAX = 3_000
_PASSWORD = 4


def prepare() -> None:
    import pypdfium2  # noqa: F401
    from PIL import Image, JpegImagePlugin

    Image.new("RGB", (1, 1)).save(io.BytesIO(), "JPEG")
    assert JpegImagePlugin


def read(data: bytes, pages: Pages) -> None:
    import pypdfium2

    try:
        document = pypdfium2.PdfDocument(data)
    except pypdfium2.PdfiumError as error:
        raise UnreadableDocument("encrypted" if getattr(error, "err_code", None) == _PASSWORD else "broken") from error
    count = len(document)
    if not count:
        raise UnreadableDocument("broken")
    pages.total = pages.first - 1
    while pages.total < count and pages.wants_next:
        pages.add(_page(document, pages.total, pages))
    pages.total = count


def _page(document: Any, index: int, pages: Pages) -> str:
    page = document[index]
    textpage = page.get_textpage()
    text = with_tables(_runs(textpage)) or "\n".join(textpage.get_text_range().splitlines()).strip()
    text = text.replace("\ufffe", "-")  # PDFium's sign for the hyphen at a line's end
    if len(text) <= SCAN_CHARS_MAX and _has_picture(page):
        pages.scans.append(index + 1)
        if len(pages.pictures) < pages.pictures_max:
            pages.pictures[index + 1] = _picture(page)
    textpage.close()
    page.close()
    return text


def _runs(textpage: Any) -> list[PlacedText]:
    """The page's runs of text; none if there are too many to be lines."""
    count = textpage.count_rects()
    runs = []
    for place in (textpage.get_rect(it) for it in range(count if count <= RUNS_MAX else 0)):
        left, bottom, right, top = place
        if text := textpage.get_text_bounded(*place).replace("\r\n", " "):
            runs.append(PlacedText(text=text, left=left, bottom=bottom, right=right, top=top))
    return runs


def _has_picture(page: Any) -> bool:
    from pypdfium2.raw import FPDF_PAGEOBJ_IMAGE

    return any(True for _ in islice(page.get_objects(filter=[FPDF_PAGEOBJ_IMAGE], max_depth=3), 1))


def _picture(page: Any) -> bytes:
    bitmap = page.render(scale=SIDE_PIXELS / max(1.0, *page.get_size()))
    written = io.BytesIO()
    bitmap.to_pil().convert("RGB").save(written, "JPEG", quality=JPEG_QUALITY)
    return written.getvalue()
