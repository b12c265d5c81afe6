"""Documents for `read`: made by other programs (`tests/documents`), broken ones, and bombs."""

import asyncio
import os
import re
import zipfile
from collections.abc import Callable, Iterator
from functools import cache
from io import BytesIO
from pathlib import Path

import psutil
import pytest

from tests.tools.bench import Bench, bench, pictures, text_of
from tools.documents.document import Answer, Documents, document_kind
from tools.documents.pdf import PlacedText, with_tables
from tools.picture import image_type

DOCUMENTS = Path(__file__).parents[1] / "documents"
W = 'xmlns:w="http://schemas.openxmlformats.org/wordprocessingml/2006/main"'
FIGURES = "| City 城市 | Revenue | Cost |\n| --- | --- | --- |\n| 北京 | 1,200 | 800 |\n| Shanghai 上海 | 950 | 400 |"


@pytest.fixture
def at(tmp_path: Path) -> Iterator[Bench]:
    uploads = tmp_path / "sent"
    uploads.mkdir()
    built = bench(tmp_path, uploads=uploads)
    for document in (it for it in DOCUMENTS.iterdir() if it.is_file()):
        (uploads / document.name).write_bytes(document.read_bytes())
    (uploads / "page.html").write_bytes((DOCUMENTS / "sources" / "report.html").read_bytes())
    yield built
    built.workspace.close()


def sent(at: Bench, name: str) -> Path:
    return at.root.parent / "sent" / name


async def test_a_pdf_comes_by_its_pages_and_says_which_of_how_many(at: Bench) -> None:
    whole = await at.text("read", file_path="uploads/report.pdf")
    assert whole.startswith("[pages 1 to 3 of 3]\n\n--- page 1 ---\nQuarterly report 季度报告\n")
    assert FIGURES in whole
    assert "收入增长百分之十二。" in whole
    second = await at.text("read", file_path="uploads/report.pdf", page="2")
    assert second.startswith("[page 2 of 3]\n\nThe second page begins here. 第二页从这里开始。")
    assert second == await at.text("read", file_path="uploads/report.pdf", page=2)
    assert (await at.text("read", file_path="uploads/report.pdf", page="2-3")).startswith("[pages 2 to 3 of 3]")
    assert (await at.text("read", file_path="uploads/owner-locked.pdf")).startswith("[pages 1 to 3 of 3]")


async def test_document_of_five_hundred_pages_is_paged(tmp_path: Path) -> None:
    at = bench(tmp_path, result_chars=16_000)
    (at.root / "long.pdf").write_bytes((DOCUMENTS / "long.pdf").read_bytes())
    page, seen = 1, []
    while True:
        text = await at.text("read", file_path="long.pdf", page=f"{page}-{page + 199}")
        assert len(text) <= 16_000
        seen += re.findall(r"Chapter (\d+) of 500", text)
        if not (more := re.search(r"on were cut; go on with page=(\d+)\]$", text)):
            break
        page = int(more[1])
    assert seen == [str(number) for number in range(1, 501)]
    assert (await at.text("read", file_path="long.pdf", page="500")).startswith("[page 500 of 500]\n\nChapter 500")
    assert await at.code("read", file_path="long.pdf", page="501") == "NOT_FOUND"
    for wrong in ("0", "x", "5-3", "-1", "1-2-3"):
        assert await at.code("read", file_path="long.pdf", page=wrong) == "INVALID_ARGUMENT"
    at.workspace.close()


async def test_a_scan_says_so_and_is_a_picture(at: Bench) -> None:
    result = await at.call("read", file_path="uploads/scan.pdf")
    assert text_of(result) == ("[page 1 of 1]\n\n[page 1 is a scan, a picture without text: its picture follows]")
    (picture,) = pictures(result)
    assert picture.media_type == "image/jpeg"
    assert picture.name == "uploads/scan.pdf, page 1"


async def test_word_keeps_headings_lists_tables_and_pages(at: Bench) -> None:
    whole = await at.text("read", file_path="uploads/report.docx")
    assert whole.startswith("[pages 1 to 3 of 3]\n\n--- page 1 ---\n# Quarterly report 季度报告\n\nRevenue grew")
    assert FIGURES in whole
    assert "## Figures 数据" in whole
    assert "- First point\n- 第二点\n1. One\n2. Two" in whole
    assert "--- page 3 ---\nThe third and last page. 第三页，也是最后一页。" in whole


async def test_a_workbook_comes_by_its_sheets_with_the_first_row_on_each_page(at: Bench) -> None:
    first = await at.text("read", file_path="uploads/book.xlsx", page="1")
    assert first.startswith('[page 1 of 3; sheet 1 of 1 "销售", 2 "Plan"]\n\n| Date 日期 | City \\| 城市 | Amount |')
    assert "| 2026-02-02 | 北京 | 10 | 0.5% | 1 |" in first
    last = await at.text("read", file_path="uploads/book.xlsx", page="3", sheet="销售")
    assert last.count("| Date 日期 |") == 1
    assert last.endswith("| Total |  | 71400 |  |  |\n".rstrip())
    for sheet in ("Plan", "plan", "2", 2):
        plan = await at.text("read", file_path="uploads/book.xlsx", sheet=sheet)
        assert plan.endswith("| Goal |  | 目标 |\n| --- | --- | --- |\n| 2.5 |  |  |")
    result = await at.call("read", file_path="uploads/book.xlsx", sheet="Q3")
    assert 'there is no such sheet; there is: 1 \\"销售\\", 2 \\"Plan\\"' in text_of(result)


async def test_slides_and_chapters_are_pages(at: Bench) -> None:
    slides = await at.text("read", file_path="uploads/slides.pptx")
    assert (
        "--- page 1 ---\nRoadmap 路线图\n\n- Build 构建\n  - Test 测试\n- Ship\n\nNotes: Say this slowly. 慢慢说。"
        in slides
    )
    assert "| Step | Owner 负责人 |\n| --- | --- |\n| Design | 王芳 |" in slides
    assert "[pages 1 to 3 of 3]" in slides
    book = await at.text("read", file_path="uploads/novel.epub", page="2")
    assert book.startswith("[page 2 of 3]\n\nChapter 2 第2章")


async def test_document_html_and_csv_only_when_uploaded(at: Bench) -> None:
    page = await at.text("read", file_path="uploads/page.html")
    assert page.startswith("[page 1 of 1]\n\n# Quarterly report 季度报告")
    assert FIGURES in page
    source = await at.text("read", file_path="uploads/page.html", offset=1)
    assert source.startswith("<html>")
    await at.call("write", file_path="page.html", content="<h1>Mine</h1>")
    assert await at.text("read", file_path="page.html") == "<h1>Mine</h1>"
    assert await at.text("read", file_path="page.html", page="1") == "[page 1 of 1]\n\n# Mine"
    sent(at, "excel.csv").write_bytes("城市;收入\n北京;1\n上海;2\n".encode("gb18030"))
    table = "[page 1 of 1]\n\n| 城市 | 收入 |\n| --- | --- |\n| 北京 | 1 |\n| 上海 | 2 |"
    assert await at.text("read", file_path="uploads/excel.csv") == table
    await at.call("write", file_path="notes.txt", content="plain")
    assert await at.code("read", file_path="notes.txt", page="1") == "INVALID_ARGUMENT"


async def test_a_page_longer_than_a_result_comes_by_its_lines(tmp_path: Path) -> None:
    at = bench(tmp_path, result_chars=1_500)
    rows = "".join(f"{number},value {number} of many words\n" for number in range(1, 120))
    await at.call("write", file_path="rows.csv", content="n,v\n" + rows)
    text = await at.text("read", file_path="rows.csv", page="1")
    assert len(text) <= 1_500
    assert text.startswith("[page 1 of 3]\n| n | v |")
    (offset,) = re.findall(r"go on with offset=(\d+)\]$", text)
    more = await at.text("read", file_path="rows.csv", page="1", offset=int(offset))
    assert f"| {int(offset) - 2} | value {int(offset) - 2} of many words |" in more
    at.workspace.close()


async def test_a_table_of_a_pdf_is_one_where_the_page_is_plain(at: Bench) -> None:
    """LibreOffice writes Chinese heads behind all rows; they stand above them again."""
    page = await at.text("read", file_path="uploads/book.pdf", page=1)
    assert (
        "| Date 日期 City \\| 城市 | Amount | Share | Paid |\n| --- | --- | --- | --- |\n| 2026-01-01 Shanghai | 0 |"
        in page
    )
    rows = placed("Debit", "Credit", "Note", "1", "", "x", "", "2", "y")
    assert with_tables(rows) == "| Debit | Credit | Note |\n| --- | --- | --- |\n| 1 |  | x |\n|  | 2 | y |"
    prose = placed(*["a line of prose that is long"] * 9)
    assert [with_tables(it) for it in (prose, rows[:5], [])] == ["", "", ""]


def placed(*cells: str) -> list[PlacedText]:
    """Rows of three."""
    places = ((text, 100.0 * (at % 3), -float(at // 3)) for at, text in enumerate(cells) if text)
    return [PlacedText(text=text, left=left, right=left + 40, top=top, bottom=top - 0.9) for text, left, top in places]


async def test_an_opendocument_is_read_as_its_twin_of_office_is(at: Bench) -> None:
    text = await at.text("read", file_path="uploads/report.odt")
    assert text.startswith("[pages 1 to 3 of 3]\n\n--- page 1 ---\n# Quarterly report 季度报告\n")
    assert FIGURES in text
    assert "twelve percent" in text
    assert "- First point\n- 第二点\n1. One\n2. Two\n" in text
    second = await at.text("read", file_path="uploads/report.odt", page="2")
    assert second.startswith("[page 2 of 3]\n\nThe second page begins here. 第二页从这里开始。\n")
    for sheet in ("1", "2"):
        ours, twin = [
            await at.text("read", file_path=f"uploads/book.{it}", sheet=sheet, page="1") for it in ("ods", "xlsx")
        ]
        assert ours == twin
    slides = await at.text("read", file_path="uploads/slides.odp")
    assert slides.startswith("[pages 1 to 3 of 3]\n\n--- page 1 ---\nRoadmap 路线图\n")
    for words in ("- Build 构建", "  - Test 测试", "Notes: Say this slowly. 慢慢说。", "| Design | 王芳 |"):
        assert words in slides
    assert "[picture]" not in slides


async def test_notes_and_reviews_of_an_opendocument_are_where_a_person_sees_them(at: Bench) -> None:
    note = "<text:note-citation>1</text:note-citation><text:note-body><text:p>Order so.</text:p></text:note-body>"
    body = f"""<office:text><text:tracked-changes><text:p>struck out</text:p></text:tracked-changes>
        <text:p>He<text:s text:c="3"/>said<text:note>{note}</text:note> <office:annotation><text:p>a remark</text:p>
        </office:annotation>it\ntwice.</text:p><text:p>A<text:tab/>B<text:line-break/>C</text:p></office:text>"""
    opendocument("text", body)(sent(at, "notes.odt"))
    text = await at.text("read", file_path="uploads/notes.odt")
    assert text == "[page 1 of 1]\n\nHe   said[^1] it twice.\n\nA\tB\nC\n\n[^1]: Order so."


async def test_what_libraries_write_is_read_as_well(at: Bench) -> None:
    text = await at.text("read", file_path="uploads/python.docx")
    assert "# Contract 合同\n\n# Parties\n\n1. one\n2. two\n- b\n\n| a b |  | c |" in text
    assert "| nested |  | x\\|y |" in text
    assert "before\n\n--- page 2 ---\nafter" in text
    text = await at.text("read", file_path="uploads/python.xlsx")
    assert '[page 1 of 1; sheet 1 of 1 "It_s _x_", 2 "empty"]' in text
    assert "| 2026-01-02 03:04:05 | 1.5 | =B2*2 |  |  |" in text
    empty = await at.text("read", file_path="uploads/python.xlsx", sheet="empty")
    assert empty.endswith("\n\n(an empty page)")
    text = await at.text("read", file_path="uploads/python.pptx")
    assert text == "[page 1 of 1]\n\n# Title 题\n\n- first\n  - second\n\nNotes: note"


async def test_a_table_of_an_accented_language_is_not_taken_for_chinese(at: Bench) -> None:
    sent(at, "latin.csv").write_bytes("name;café\nMüller;1\n".encode("cp1252"))
    assert "| name | café |\n| --- | --- |\n| Müller | 1 |" in await at.text("read", file_path="uploads/latin.csv")


def word(body: str, head: str = "") -> Callable[[Path], None]:
    return package(
        {"word/document.xml": f"<?xml version='1.0'?>{head}<w:document {W}><w:body>{body}</w:body></w:document>"}
    )


def package(members: dict[str, str]) -> Callable[[Path], None]:
    def make(path: Path) -> None:
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as file:
            for name, text in members.items():
                file.writestr(name, text)

    return make


def opendocument(kind: str, body: str, manifest: str = "") -> Callable[[Path], None]:
    names = (f'xmlns:{it}="urn:oasis:names:tc:opendocument:xmlns:{it}:1.0"' for it in ("office", "text", "table"))
    content = f"<office:document-content {' '.join(names)}><office:body>{body}</office:body></office:document-content>"
    mimetype = f"application/vnd.oasis.opendocument.{kind}"
    return package({"mimetype": mimetype, "content.xml": content, "META-INF/manifest.xml": manifest})


def copied(name: str, length: int) -> Callable[[Path], None]:
    return written((DOCUMENTS / name).read_bytes()[:length])


def written(data: bytes) -> Callable[[Path], None]:
    def make(path: Path) -> None:
        path.write_bytes(data)

    return make


@cache
def bomb() -> bytes:
    """A few megabytes that unpack to more than half a gigabyte."""
    with (
        zipfile.ZipFile(made := BytesIO(), "w", zipfile.ZIP_DEFLATED, compresslevel=1) as file,
        file.open("word/document.xml", "w") as member,
    ):
        for _ in range(520):
            member.write(bytes(1 << 20))
    return made.getvalue()


def spaces(path: Path) -> None:
    path.write_bytes(bomb())


def lying(path: Path) -> None:
    """The same, with headers that promise one byte."""
    data = bytearray(bomb())
    at = data.rindex(b"PK\x01\x02")
    data[at + 24 : at + 28] = (1).to_bytes(4, "little")
    path.write_bytes(data)


BILLION = '<!DOCTYPE x [<!ENTITY a "aaaaaaaaaa"><!ENTITY b "&a;&a;&a;&a;&a;&a;&a;&a;&a;&a;">]>'
OUTSIDE = '<!DOCTYPE x [<!ENTITY a SYSTEM "file:///etc/passwd">]>'
OLE = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"
HOSTILE = {
    "locked.pdf": (copied("locked.pdf", 1 << 20), "DOCUMENT_LOCKED", "password"),
    "locked.docx": (copied("locked.docx", 1 << 20), "DOCUMENT_LOCKED", "password"),
    "old.doc": (written(OLE + bytes(600)), "DOCUMENT_UNREADABLE", ".docx"),
    "cut.pdf": (copied("report.pdf", 9_000), "DOCUMENT_BROKEN", "damaged"),
    "cut.docx": (copied("report.docx", 4_000), "DOCUMENT_BROKEN", "damaged"),
    "empty.pdf": (written(b"%PDF-1.7 quarterly figures"), "DOCUMENT_BROKEN", "damaged"),
    "bomb.docx": (spaces, "DOCUMENT_TOO_LARGE", "unpacks"),
    "billion.docx": (word("<w:p><w:r><w:t>&b;</w:t></w:r></w:p>", BILLION), "DOCUMENT_TOO_LARGE", "unpacks"),
    "outside.docx": (word("<w:p><w:r><w:t>&a;</w:t></w:r></w:p>", OUTSIDE), "DOCUMENT_TOO_LARGE", "unpacks"),
    "many.docx": (package({f"{n}.xml": "" for n in range(20_001)}), "DOCUMENT_TOO_LARGE", "unpacks"),
    "deep.docx": (word("<w:p><w:r>" * 50_000), "DOCUMENT_BROKEN", "damaged"),
    "locked.odt": (opendocument("text", "", "<manifest:encryption-data/>"), "DOCUMENT_LOCKED", "password"),
    "formula.odf": (opendocument("formula", ""), "NOT_TEXT", "zip"),
    "cut.odt": (copied("report.odt", 4_000), "DOCUMENT_BROKEN", "damaged"),
    "plain.zip": (package({"a.txt": "x"}), "NOT_TEXT", "zip"),
}  # fmt: skip


@pytest.mark.parametrize("name", HOSTILE)
async def test_what_cannot_be_read_is_one_sentence(at: Bench, name: str) -> None:
    make, code, words = HOSTILE[name]
    make(sent(at, name))
    result = await at.call("read", file_path=f"uploads/{name}")
    assert result.is_error
    assert f'"error_code": "{code}"' in text_of(result)
    assert f"'uploads/{name}': it " in text_of(result)
    assert words in text_of(result)
    assert len(text_of(result)) < 500


async def test_headers_that_lie_about_a_size_make_no_difference(at: Bench) -> None:
    lying(sent(at, "lying.docx"))
    assert await at.code("read", file_path="uploads/lying.docx") in ("DOCUMENT_TOO_LARGE", "DOCUMENT_BROKEN")


async def test_a_row_that_stands_for_a_million_is_many_and_not_a_million(at: Bench) -> None:
    cell = '<table:table-cell table:number-columns-repeated="999999"><text:p>x</text:p></table:table-cell>'
    row = f'<table:table-row table:number-rows-repeated="1048576">{cell}</table:table-row>'
    body = f'<office:spreadsheet><table:table table:name="All">{row}</table:table></office:spreadsheet>'
    opendocument("spreadsheet", body)(sent(at, "wide.ods"))
    text = await at.text("read", file_path="uploads/wide.ods", page="1")
    assert text.startswith('[page 1 of 20; sheet 1 of 1 "All"]')
    assert text.splitlines()[2].count("x") == 200


async def test_memory_is_bounded_by_the_kernel(at: Bench) -> None:
    huge = "".join(f"<si><t>{n} {'x' * 2_000}</t></si>" for n in range(35_000))
    main = "http://schemas.openxmlformats.org/spreadsheetml/2006/main"
    with zipfile.ZipFile(DOCUMENTS / "book.xlsx") as source:
        members = {it: source.read(it).decode() for it in source.namelist()}
    members["xl/sharedStrings.xml"] = f'<sst xmlns="{main}">{huge}</sst>'
    package(members)(sent(at, "strings.xlsx"))
    assert await at.code("read", file_path="uploads/strings.xlsx") == "DOCUMENT_TOO_LARGE"
    cells = "".join(f"<w:p><w:r><w:t>{'y' * 100}</w:t></w:r></w:p>" for _ in range(10))
    word(f"<w:tbl>{f'<w:tr><w:tc>{cells}</w:tc></w:tr>' * 120_000}</w:tbl>")(sent(at, "table.docx"))
    assert await at.code("read", file_path="uploads/table.docx") in ("DOCUMENT_TOO_LARGE", "DOCUMENT_BROKEN")


async def test_time_is_bounded_and_nothing_is_left_of_the_child(tmp_path: Path) -> None:
    slow, before = Documents(0.001), psutil.Process().children()
    answers = await asyncio.gather(*(slow.glance((DOCUMENTS / "long.pdf").read_bytes(), "long.pdf") for _ in range(3)))
    assert {it.words for it in answers} == {"a document whose pages were not counted: that would take too long"}
    assert [it for it in psutil.Process().children() if it not in before] == []


async def test_a_reader_that_breaks_down_or_lies_is_a_sentence_too() -> None:
    """The child is believed as little as a stranger."""
    for answer in ("", "{", '{"total": -1}', '{"texts": [1]}', '{"more": 1}'):
        with pytest.raises(ValueError, match="validation error"):
            Answer.model_validate_json(answer)
    assert Answer(sheets=['a"; evil.pdf, saved as ./uploads/x']).title("office") == (
        'workbook of 1 sheet: 1 "a_ evil.pdf_ saved as ._uploads_x"'
    )


RIGHTS = """
import json, os, socket, sys
sys.path.insert(0, {root!r})
from tools.documents import child
child._limit(5, 1 << 28)
child.prepare("pdf")
child._give_up()
for attempt in ("open('/etc/passwd')", "socket.socket()", "os.kill(os.getppid(), 0)", "os.open('/tmp', os.O_RDONLY)"):
    try:
        eval(attempt)
        print("could:", attempt, flush=True)
    except OSError:
        print("refused", flush=True)
os._exit(0)
"""


async def test_what_reads_a_document_can_open_nothing(tmp_path: Path) -> None:
    process = await asyncio.create_subprocess_exec(
        os.path.realpath("/proc/self/exe"), "-c", RIGHTS.format(root=str(DOCUMENTS.parents[1])),
        stdout=asyncio.subprocess.PIPE, env={"PYTHONPATH": os.pathsep.join(__import__("sys").path)},
    )  # fmt: skip
    said, _ = await process.communicate()
    assert b"could: open" not in said
    assert b"could: socket" not in said
    assert said.count(b"refused") >= 3


def test_a_document_is_known_by_its_bytes_and_text_by_its_name() -> None:
    heads = {it.name: it.read_bytes()[:1024] for it in DOCUMENTS.iterdir() if it.is_file()}
    kinds = {name: document_kind(head, "file") for name, head in heads.items()}
    assert kinds == {
        "python.docx": "office", "python.xlsx": "office", "python.pptx": "office", "book.pdf": "pdf",
        "report.docx": "office", "report.pdf": "pdf", "book.xlsx": "office", "slides.pptx": "office",
        "novel.epub": "epub", "long.pdf": "pdf", "scan.pdf": "pdf", "locked.pdf": "pdf",
        "owner-locked.pdf": "pdf", "locked.docx": "ole", "report.odt": "office",
        "book.ods": "office", "slides.odp": "office", "README.md": None, "make.sh": None,
    }  # fmt: skip
    assert document_kind(b"a,b", "DATA.CSV") == "csv"
    assert document_kind(b"\n<!DOCTYPE html><p>", "file") == "html"
    assert document_kind(b"a\0b", "a.csv") is None
    assert image_type(heads["scan.pdf"]) is None
