"""Text in other encodings than UTF-8, in everything that reads files: read as it was written, or said to be not."""

import re

import pytest

from tests.case import case
from tests.tools.bench import Bench, text_of
from tools.encoding import decoded, encoding_of

SIMPLIFIED = "会议纪要：今天讨论了预算和人员安排。"
TRADITIONAL = "會議紀要：今天討論了預算和人員安排。"
JAPANESE = "会議の議事録：今日は予算と人員について話し合いました。"
TEXTS = {
    "gbk": (SIMPLIFIED, "gbk", "GBK"),
    "gbk, traditional": (TRADITIONAL, "gbk", "GBK"),
    "gb18030, four bytes": (f"{SIMPLIFIED}𠜎😀", "gb18030", "GB18030"),
    "big5": (TRADITIONAL, "big5", "Big5"),
    "shift-jis": (JAPANESE, "cp932", "Shift-JIS"),
    "windows-1252": ("Straße, naïve café – 5 €", "cp1252", "Windows-1252"),
    "utf-16": (SIMPLIFIED, "utf-16", "UTF-16"),
    "utf-16, english": ("meeting notes", "utf-16", "UTF-16"),
    "utf-16 big end": (f"\ufeff{SIMPLIFIED}", "utf-16-be", "UTF-16"),
    "utf-16 without a mark": (f"notes: {SIMPLIFIED}", "utf-16-le", "UTF-16"),
    "utf-16 big end without a mark": (f"notes: {SIMPLIFIED}", "utf-16-be", "UTF-16"),
    "utf-16 without a mark or an ascii letter": (SIMPLIFIED, "utf-16-le", "UTF-16"),
    "gbk, late": ("plain line\n" * 20_000 + SIMPLIFIED, "gbk", "GBK"),
}


async def test_text_in_another_encoding_is_read_and_found_and_named(at: Bench) -> None:
    for number, (name, (text, codec, title)) in enumerate(TEXTS.items()):
        with case(name):
            path, line = f"{number}.txt", text.removeprefix("\ufeff").rpartition("\n")[2]
            (at.root / path).write_bytes(text.encode(codec))
            note = f"\n[the file is not UTF-8; it was read as {title}]"
            assert (await at.text("read", file_path=path, offset=-1)).endswith(f"{line}{note}")
            assert (await at.text("grep", pattern=re.escape(line[-8:]), path=path)) == (
                f"{path}:{text.count(chr(10)) + 1}: {line}\n[of these files 1 is not UTF-8, read as {title}]"
            )
            assert decoded(text.encode(codec)) == text.removeprefix("\ufeff")


async def test_edit_keeps_the_encoding_of_a_file(at: Bench) -> None:
    for number, (name, (text, codec, title)) in enumerate(TEXTS.items()):
        with case(name):
            file = at.root / f"{number}.txt"
            file.write_bytes(text.encode(codec))
            old, new = text[-6:-1], text[-4:-2]
            edited = await at.text("edit", file_path=file.name, old_text=old, new_text=new)
            assert f", still in {title})" in edited
            changed = text[:-6] + new + text[-1:]
            assert file.read_bytes() == (changed.encode(codec))


@pytest.mark.parametrize(
    ("codec", "text", "new"),
    [("gbk", SIMPLIFIED, "😀"), ("big5", TRADITIONAL, "国"), ("cp932", JAPANESE, "您"), ("cp1252", "café – où", "中")],
)
async def test_edit_refuses_what_the_encoding_cannot_write(at: Bench, codec: str, text: str, new: str) -> None:
    (at.root / "a.txt").write_bytes(text.encode(codec))
    refused = text_of(await at.call("edit", file_path="a.txt", old_text=text[:2], new_text=new))
    assert f"which has no '{new}' (U+{ord(new):04X}); nothing was changed" in refused
    assert "write the whole file anew, which makes it UTF-8" in refused
    assert (at.root / "a.txt").read_bytes() == text.encode(codec)


BROKEN = {
    "a byte in utf-8": (SIMPLIFIED.encode() + b"\xff" + "尾".encode(), f"{SIMPLIFIED}\ufffd尾", ""),
    "a byte in ascii": (b"fine \xff words", "fine \ufffd words", ""),
    "a character cut at the end": ("尾巴".encode()[:-1], "尾\ufffd", ""),
    "a byte in gbk": (SIMPLIFIED.encode("gbk") + b"\xff!", f"{SIMPLIFIED}\ufffd!", "GBK"),
    "half a pair in utf-16": (
        "\ufeff头".encode("utf-16-le") + b"\x3d\xd8" + "尾".encode("utf-16-le"),
        "头\ufffd",
        "UTF-16",
    ),
}


async def test_bytes_that_are_no_text_are_counted_and_not_written_back(at: Bench) -> None:
    for number, (name, (data, shown, title)) in enumerate(BROKEN.items()):
        with case(name):
            (at.root / f"{number}.txt").write_bytes(data)
            text = await at.text("read", file_path=f"{number}.txt")
            assert text.startswith(shown)
            lost = re.findall(r"(\d byte)s? that could not be read (?:is|are) shown as �\]$", text)
            assert len(lost) == 1
            assert (f"read as {title}" in text) == bool(title)
            refused = text_of(await at.call("edit", file_path=f"{number}.txt", old_text=shown[:1], new_text="x"))
            assert "nor wholly in any other encoding" in refused
            assert (at.root / f"{number}.txt").read_bytes() == data


async def test_a_long_text_in_another_encoding_comes_in_pages_that_say_so(at: Bench) -> None:
    (at.root / "long.txt").write_bytes("".join(f"第{number}行\n" for number in range(1, 101)).encode("gbk"))
    page = await at.text("read", file_path="long.txt", offset=11, limit=2)
    assert page.startswith("第11行\n第12行\n\n[lines 11 to 12 of a file of ")
    assert page.endswith("go on with offset=13]\n[the file is not UTF-8; it was read as GBK]")
    assert (await at.text("read", file_path="long.txt", offset=13, limit=1)).startswith("第13行\n")


async def test_what_is_no_text_is_still_none(at: Bench) -> None:
    for data in (b"a\0b", b"\0" * 64, b"\x7fELF\2\1\1\0" + bytes(range(256)) * 8, b"\xff\x00\xff"):
        (at.root / "file").write_bytes(data)
        assert encoding_of(data) is None
        assert await at.code("read", file_path="file") == "NOT_TEXT"
        assert await at.code("edit", file_path="file", old_text="a", new_text="b") == "NOT_TEXT"
        assert await at.text("grep", pattern=".") == "(no matching line)"
