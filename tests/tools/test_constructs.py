"""What documents of Office are made of: every construct is read, or named, and none is left out as if it were not there."""

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.case import case
from tests.tools.bench import Bench, bench
from tests.tools.test_documents import W, package, sent


@pytest.fixture
def at(tmp_path: Path) -> Iterator[Bench]:
    (tmp_path / "sent").mkdir()
    built = bench(tmp_path, uploads=tmp_path / "sent")
    yield built
    built.workspace.close()


KIND = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
EXTERNAL = ' TargetMode="External"'
RELATED = f'xmlns:r="{KIND}"'
MATH = 'xmlns:m="http://schemas.openxmlformats.org/officeDocument/2006/math"'


def related(*targets: tuple[str, str, str]) -> str:
    """The relations of a member: id, kind and target of each; an address is outside of the file."""
    made = (
        f'<Relationship Id="{name}" Type="{KIND}/{kind}" Target="{target}"{EXTERNAL if "://" in target else ""}/>'
        for name, kind, target in targets
    )
    names = "http://schemas.openxmlformats.org/package/2006/relationships"
    return f'<Relationships xmlns="{names}">{"".join(made)}</Relationships>'


def p(text: str) -> str:
    return f"<w:p>{r(text)}</w:p>"


def r(text: str) -> str:
    return f"<w:r><w:t>{text}</w:t></w:r>"


def tc(inner: str) -> str:
    return f"<w:tc>{inner}</w:tc>"


def sdt(inner: str) -> str:
    return f"<w:sdt><w:sdtPr><w:alias w:val='x'/></w:sdtPr><w:sdtContent>{inner}</w:sdtContent></w:sdt>"


def tbl(*rows: str) -> str:
    return f"<w:tbl>{''.join(rows)}</w:tbl>"


def tr(*cells: str) -> str:
    return f"<w:tr>{''.join(cells)}</w:tr>"


def m(name: str, **parts: str) -> str:
    inner = "".join(f"<m:{part}><m:r><m:t>{text}</m:t></m:r></m:{part}>" for part, text in parts.items())
    return f"<w:p><m:oMath><m:{name}>{inner}</m:{name}></m:oMath></w:p>"


TABLE = "| City | Paris |\n| --- | --- |"
NAMES = {
    "mc": "http://schemas.openxmlformats.org/markup-compatibility/2006",
    "a": "http://schemas.openxmlformats.org/drawingml/2006/main",
    "c": "http://schemas.openxmlformats.org/drawingml/2006/chart",
    "dgm": "http://schemas.openxmlformats.org/drawingml/2006/diagram",
    "pic": "http://schemas.openxmlformats.org/drawingml/2006/picture",
    "v": "urn:schemas-microsoft-com:vml",
    "x": "urn:of-the-future",
}
WORDS = {
    "a control around a block": (sdt(p("City")), "City"),
    "a control in a paragraph": (f"<w:p>{r('City ')}{sdt(r('Paris'))}</w:p>", "City Paris"),
    "a control around a table": (sdt(tbl(tr(tc(p("City")), tc(p("Paris"))))), TABLE),
    "a control around a row": (tbl(sdt(tr(tc(p("City")), tc(p("Paris"))))), TABLE),
    "a control around a cell": (tbl(tr(tc(p("City")), sdt(tc(p("Paris"))))), TABLE),
    "controls in controls": (tbl(sdt(sdt(tr(tc(p("City")), sdt(sdt(tc(sdt(p("Paris")))))))),), TABLE),
    "a custom element around a cell": (tbl(tr(f"<w:customXml>{tc(p('City'))}</w:customXml>", tc(p("Paris")))), TABLE),
    "an insertion": (f"<w:p><w:ins w:id='1'>{r('City')}</w:ins></w:p>", "City"),
    "an inserted row": (tbl(f"<w:ins>{tr(tc(p('City')), tc(p('Paris')))}</w:ins>"), TABLE),
    "a deletion": (f"<w:p>{r('City')}<w:del><w:r><w:delText>Rome</w:delText></w:r></w:del></w:p>", "City"),
    "a deleted row": (
        tbl(tr(tc(p("City")), tc(p("Paris"))), f"<w:tr><w:trPr><w:del/></w:trPr>{tc(p('Rome'))}</w:tr>"),
        TABLE,
    ),
    "moved text": (f"<w:p><w:moveFrom>{r('Rome')}</w:moveFrom><w:moveTo>{r('City')}</w:moveTo></w:p>", "City"),
    "a nested table": (tbl(tr(tc(p("City")), tc(tbl(tr(tc(p("Paris")))) + "<w:p/>"))), "| City | Paris"),
    "a text box": (
        f"<w:p>{r('City')}<w:r><mc:AlternateContent><mc:Choice><w:txbxContent>{p('Paris')}{p('Lyon')}</w:txbxContent>"
        f"</mc:Choice><mc:Fallback><w:txbxContent>{p('Paris')}</w:txbxContent></mc:Fallback></mc:AlternateContent></w:r></w:p>",
        "City\nParis\nLyon",
    ),
    "a link": (f"<w:p><w:hyperlink r:id='l1'>{r('City')}</w:hyperlink></w:p>", "[City](https://example.com/)"),
    "a link within": (f"<w:p><w:hyperlink w:anchor='x'>{r('City')}</w:hyperlink></w:p>", "City"),
    "a field": (f"<w:p><w:r><w:instrText>DATE</w:instrText></w:r><w:fldSimple>{r('City')}</w:fldSimple></w:p>", "City"),
    "a comment": (f"<w:p>{r('City')}<w:r><w:commentReference w:id='0'/></w:r></w:p>", "City[^c0]"),
    "the words of a comment": (p("City"), "[^c0]: comment by Lee: why"),
    "a footnote": (f"<w:p>{r('City')}<w:r><w:footnoteReference w:id='2'/></w:r></w:p>", "City[^2]"),
    "the words of a footnote": (p("City"), "[^2]: below"),
    "a header": (p("City"), "Header: Confidential"),
    "a formula": (m("f", num="a", den="b"), "(a)/(b)"),
    "a power": (m("sSup", e="x", sup="2"), "x^(2)"),
    "a root": (m("rad", deg="", e="x"), "√(x)"),
    "an unknown formula": (m("new", e="x"), "x"),
    "ruby": (f"<w:p><w:r><w:ruby><w:rt>{r('jing')}</w:rt><w:rubyBase>{r('京')}</w:rubyBase></w:ruby></w:r></w:p>", "京"),
    "signs": ("<w:p><w:r><w:t>a</w:t><w:noBreakHyphen/><w:t>b</w:t><w:cr/><w:t>c</w:t></w:r></w:p>", "a-b\nc"),
    "a symbol": ("<w:p><w:r><w:sym w:font='Wingdings' w:char='F0FE'/><w:sym w:char='2713'/></w:r></w:p>", "[symbol F0FE]✓"),
    "a picture": ("<w:p><w:r><w:drawing><pic:pic/></w:drawing></w:r></w:p>", "[picture]"),
    "a picture of old": ("<w:p><w:r><w:pict><v:imagedata/></w:pict></w:r></w:p>", "[picture]"),
    "a chart": ("<w:p><w:r><w:drawing><c:chart/></w:drawing></w:r></w:p>", "[chart]"),
    "a diagram": ("<w:p><w:r><w:drawing><dgm:relIds/></w:drawing></w:r></w:p>", "[diagram]"),
    "an object": ("<w:p><w:r><w:object/></w:r></w:p>", "[embedded object]"),
    "a document within": ("<w:altChunk/>", "[embedded document]"),
    "what does not exist yet": (f"<w:p><x:new>{r('City')}</x:new></w:p>", "City"),
}  # fmt: skip


def written_word(body: str, *, strict: bool = False) -> Callable[[Path], None]:
    head = f"{W} {RELATED} {MATH} " + " ".join(f'xmlns:{name}="{address}"' for name, address in NAMES.items())
    members = {
        "word/document.xml": f"<w:document {head}><w:body>{body}<w:sectPr/></w:body></w:document>",
        "word/_rels/document.xml.rels": related(
            ("l1", "hyperlink", "https://example.com/"), ("h1", "header", "header1.xml")
        ),
        "word/comments.xml": f'<w:comments {W}><w:comment w:id="0" w:author="Lee">{p("why")}</w:comment></w:comments>',
        "word/footnotes.xml": f'<w:footnotes {W}><w:footnote w:id="2">{p("below")}</w:footnote></w:footnotes>',
        "word/header1.xml": f"<w:hdr {W}>{p('Confidential')}</w:hdr>",
    }
    return package({name: as_strict(text) if strict else text for name, text in members.items()})


def as_strict(text: str) -> str:
    """The same in Strict OOXML, as Word and Excel save it at request."""
    return re.sub(r"http://schemas\.openxmlformats\.org/(\w+)/2006/", r"http://purl.oclc.org/ooxml/\1/", text).replace(
        "http://purl.oclc.org/ooxml/package/", "http://schemas.openxmlformats.org/package/2006/"
    )


@pytest.mark.parametrize("strict", [False, True], ids=["transitional", "strict"])
async def test_every_construct_of_word_is_read_or_named(at: Bench, strict: bool) -> None:
    for number, (name, (body, words)) in enumerate(WORDS.items()):
        with case(name):
            written_word(body, strict=strict)(sent(at, f"{number}.docx"))
            text = await at.text("read", file_path=f"uploads/{number}.docx")
            assert text.startswith(f"[page 1 of 1]\n\n{words}") or f"\n\n{words}" in text
            assert "Rome" not in text
            assert "jing" not in text
            assert text.count("Paris") <= 1


CELLS = {
    "a number of another language": ("<c r='A1'><v>12,5</v></c>", "12,5"),
    "a style that is no number": ("<c r='A1' s='x'><v>12</v></c>", "12"),
    "a style that is not there": ("<c r='A1' s='99'><v>12</v></c>", "12"),
    "a text beyond the table": ("<c r='A1' t='s'><v>99</v></c>", "99"),
    "a text that is no number": ("<c r='A1' t='s'><v>x</v></c>", "x"),
    "a place with dollars": ("<c r='$A$1'><v>3</v></c>", "3"),
    "a place in small letters": ("<c r='a1'><v>3</v></c>", "3"),
    "a place that is none": ("<c r='?!'><v>3</v></c>", "3"),
    "no place": ("<c><v>3</v></c>", "3"),
    "not a number": ("<c r='A1'><v>nan</v></c>", "nan"),
    "a number beyond all": ("<c r='A1'><v>1e400</v></c>", "1e400"),
    "a formula alone": ("<c r='A1'><f>B1*2</f></c>", "=B1*2"),
    "a formula of another cell": ("<c r='A1'><f t='shared' si='0'/></c>", "=(a formula that another cell has)"),
    "an error": ("<c r='A1' t='e'><v>#DIV/0!</v></c>", "#DIV/0!"),
    "true": ("<c r='A1' t='b'><v>1</v></c>", "TRUE"),
    "neither true nor false": ("<c r='A1' t='b'><v>maybe</v></c>", "maybe"),
    "a text within": ("<c r='A1' t='inlineStr'><is><t>in</t></is></c>", "in"),
    "a date of the standard": ("<c r='A1' t='d'><v>2026-01-02</v></c>", "2026-01-02"),
    "a kind of the future": ("<c r='A1' t='new'><v>7</v></c>", "7"),
}
MAIN = "http://schemas.openxmlformats.org/spreadsheetml/2006/main"


def workbook(sheet: str, *, kind: str = "worksheet", strict: bool = False) -> Callable[[Path], None]:
    members = {
        "xl/workbook.xml": f'<workbook xmlns="{MAIN}" {RELATED}><sheets><sheet name="S" r:id="r1"/></sheets></workbook>',
        "xl/_rels/workbook.xml.rels": related(("r1", kind, "worksheets/s.xml")),
        "xl/worksheets/s.xml": f'<worksheet xmlns="{MAIN}"><sheetData>{sheet}</sheetData></worksheet>',
    }
    return package({name: as_strict(text) if strict else text for name, text in members.items()})


@pytest.mark.parametrize("strict", [False, True], ids=["transitional", "strict"])
async def test_an_odd_cell_is_shown_as_it_is_and_the_others_as_ever(at: Bench, strict: bool) -> None:
    rows = "".join(f"<row>{cell}<c r='C1'><v>7</v></c></row>" for cell, _ in CELLS.values())
    workbook(f"<row><c><v>0</v></c></row>{rows}", strict=strict)(sent(at, "odd.xlsx"))
    text = await at.text("read", file_path="uploads/odd.xlsx")
    shown = [line.split(" | ")[0].removeprefix("| ") for line in text.splitlines() if line.endswith("|  | 7 |")]
    assert dict(zip(CELLS, shown, strict=True)) == {name: words for name, (_, words) in CELLS.items()}
    workbook("", kind="chartsheet")(sent(at, "chart.xlsx"))
    assert (await at.text("read", file_path="uploads/chart.xlsx")).endswith("\n\n[chart]")


async def test_a_nul_in_a_table_costs_itself_alone(at: Bench) -> None:
    sent(at, "nul.csv").write_bytes(b"a,b\n1\x00,2\n")
    assert "| 1\ufffd | 2 |" in await at.text("read", file_path="uploads/nul.csv")


async def test_what_is_on_a_slide_is_read_or_named(at: Bench) -> None:
    head = f'xmlns:p="http://schemas.openxmlformats.org/presentationml/2006/main" {RELATED} {MATH} ' + " ".join(
        f'xmlns:{name}="{address}"' for name, address in NAMES.items()
    )

    def shape(text: str) -> str:
        return f"<p:sp><p:txBody><a:p><a:r><a:t>{text}</a:t></a:r></a:p></p:txBody></p:sp>"

    def frame(uri: str) -> str:
        return f'<p:graphicFrame><a:graphic><a:graphicData uri="{uri}"/></a:graphic></p:graphicFrame>'

    slide = (
        f"<p:grpSp><p:grpSp>{shape('grouped')}</p:grpSp></p:grpSp>{frame(NAMES['c'])}{frame(NAMES['dgm'])}{frame('urn:ole')}"
        f"<mc:AlternateContent><mc:Choice>{shape('new')}</mc:Choice><mc:Fallback>{shape('old')}</mc:Fallback></mc:AlternateContent>"
        "<p:sp><p:txBody><a:p><m:oMath><m:t>x+y</m:t></m:oMath></a:p></p:txBody></p:sp>"
    )
    listed = '<p:sldId r:id="s1"/><p:sldId r:id="s2"/>'
    members = {
        "ppt/presentation.xml": f"<p:presentation {head}><p:sldIdLst>{listed}</p:sldIdLst></p:presentation>",
        "ppt/_rels/presentation.xml.rels": related(("s1", "slide", "slides/1.xml"), ("s2", "slide", "slides/2.xml")),
        "ppt/slides/1.xml": f'<p:sld {head} show="0"><p:cSld><p:spTree>{slide}</p:spTree></p:cSld></p:sld>',
        "ppt/slides/_rels/1.xml.rels": related(
            ("c", "chart", "c.xml"), ("d", "diagramData", "d.xml"), ("n", "comments", "n.xml")
        ),
        "ppt/slides/c.xml": f"<c:chartSpace {head}><a:p><a:r><a:t>Growth</a:t></a:r></a:p></c:chartSpace>",
        "ppt/slides/d.xml": f"<dgm:dataModel {head}><a:p><a:r><a:t>Plan</a:t></a:r></a:p></dgm:dataModel>",
        "ppt/slides/n.xml": f"<p:cmLst {head}><p:cm><p:text>too long</p:text></p:cm></p:cmLst>",
    }
    for strict in (False, True):
        package({name: as_strict(text) if strict else text for name, text in members.items()})(sent(at, "odd.pptx"))
        text = await at.text("read", file_path="uploads/odd.pptx")
        for words in ("(a hidden slide)", "grouped", "new", "x+y", "[embedded object]", "[chart: Growth]", "[diagram: Plan]",
                      "[comments: too long]", "[this slide is missing in the file]"):  # fmt: skip
            assert words in text
        assert "old" not in text


STRANGE = {
    "a.docx": {"word/document.xml": "<w:document xmlns:w='urn:of-the-future'><w:body><w:p/></w:body></w:document>"},
    "b.docx": {"word/document.xml": f"<w:document {W}><w:body><w:new/></w:body></w:document>"},
    "c.pptx": {"ppt/presentation.xml": "<presentation/>"},
    "d.xlsx": {"xl/workbook.xml": "<workbook/>"},
}


@pytest.mark.parametrize("name", STRANGE)
async def test_a_document_of_which_nothing_was_understood_is_an_error(at: Bench, name: str) -> None:
    package(STRANGE[name])(sent(at, name))
    assert await at.code("read", file_path=f"uploads/{name}") in ("DOCUMENT_UNREADABLE", "DOCUMENT_BROKEN")


async def test_a_page_of_which_nothing_was_understood_is_an_error(at: Bench) -> None:
    deep = "<!doctype html><html><body>" + "<div>" * 100_000 + "hi" + "</div>" * 100_000
    sent(at, "deep.html").write_text(deep)
    assert await at.code("read", file_path="uploads/deep.html") == "DOCUMENT_UNREADABLE"
    sent(at, "blank.html").write_text("<!doctype html><head><title>t</title></head><body><script>1</script></body>")
    assert not (await at.call("read", file_path="uploads/blank.html")).is_error


async def test_a_document_in_which_nothing_is_written_is_an_empty_page(at: Bench) -> None:
    package({"word/document.xml": f"<w:document {W}><w:body><w:sectPr/></w:body></w:document>"})(sent(at, "e.docx"))
    assert await at.text("read", file_path="uploads/e.docx") == "[page 1 of 1]\n\n(an empty page)"
