"""Files in the web chat: what a person attaches reaches the agent, what an agent names reaches the person."""

import os
import re
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

from tests.emulators.models.script import says
from tests.running import Running, running
from tests.stories.at_work import shown, spoken
from tests.stories.channels.test_telegram import PIXEL as PNG
from tests.web_page import WEB, Page, opened

TEXT = b"\xe4\xbd\xa0\xe5\xa5\xbd\n<script>alert(1)</script>\x00\xff"


def uploads(house: Running) -> dict[str, bytes]:
    return {path.rpartition("/")[2]: data for path, data in house.uploads().items()}


async def kept(page: Page, data: bytes, name: str, type_: str = "application/octet-stream") -> dict[str, Any]:
    answer = await page.upload(data, name, type_)
    assert answer.status_code == 200, answer.text
    return dict(answer.json())


async def test_web_file_attached_is_shown_or_saved(house: Running, page: Page) -> None:
    picture = await kept(page, PNG, "图.png", "image/png")
    assert (picture["name"], picture["type"], picture["size"]) == ("图.png", "image/png", len(PNG))
    await page.say("what is this?", files=[picture["id"]])
    await page.answers(1)
    assert shown(house)[1] == ["image/png"]
    assert page.written("you")[0]["files"] == [picture]
    files = [await kept(page, TEXT, "notes.txt", "text/plain"), await kept(page, b"2", "notes.txt", "text/plain")]
    await page.say("", files=[file["id"] for file in files], chat="c_another_one")
    await page.answers(2)
    assert uploads(house) == {"图.png": PNG, "notes.txt": TEXT, "notes-2.txt": b"2"}
    (path,) = [path for path in house.uploads() if path.endswith("/notes.txt")]
    assert f"saved as {path}" in spoken(house)
    assert [chat["title"] for chat in await page.chats()] == ["notes.txt", "what is this?"]


async def test_web_file_of_each_collected_message_is_told(house: Running, page: Page) -> None:
    house.anthropic.script = [says("slow")]
    house.line.hold()
    await page.say("begin")
    await house.requested(1)
    for name in ("one.txt", "two.txt", "three.txt"):
        await page.say(f"see {name}", files=[(await kept(page, name.encode(), name))["id"]])
    await page.until(lambda: len(page.written("you")) == 4)
    assert page.written() == []
    with closing(sqlite3.connect(house.folder / "data" / "clawgate.db", timeout=10)) as database, database:
        database.execute("DELETE FROM file WHERE name = 'three.txt'")
    house.line.release()
    await page.answers(2)
    words = spoken(house)
    places = [
        words.index(word) for word in (": see one.txt", "/one.txt", ": see two.txt", "/two.txt", ": see three.txt")
    ]
    assert places == sorted(places)
    assert "three.txt, could not be fetched" in words[places[-1] :]
    assert uploads(house) == {"one.txt": b"one.txt", "two.txt": b"two.txt"}


NAMES = {
    "../../../etc/passwd": "passwd",
    "..\\..\\boot.ini": "boot.ini",
    "..": "file",
    "": "file",
    "a\r\nset-cookie: x=1.txt": "aset-cookie_x_1.txt",
    'a"; filename="b.html': "a_filename_b.html",
    "a\x00b.txt": "ab.txt",
    "x" * 300 + ".txt": "x" * 76 + ".txt",
    "AGENTS.md": "AGENTS.md",
}


async def test_web_file_name_cannot_escape_folder_or_header(house: Running, page: Page) -> None:
    for name in NAMES:
        file = await kept(page, b"x", name)
        assert file["name"].isprintable()
        assert 0 < len(file["name"]) <= 200
        answer = await page.http.get(f"/api/files/{file['id']}")
        assert answer.headers.get_list("content-disposition")[0].startswith("attachment; filename*=UTF-8''")
        assert "set-cookie" not in answer.headers
        await page.say("x", files=[file["id"]], chat=f"c_name_{file['id'][-20:]}")
    await page.answers(len(NAMES))
    data = house.folder / "data"
    found = [path for path in data.rglob("*") if path.is_file() and path.parent not in (data, house.workspace())]
    assert sorted(path.name for path in found) == sorted(NAMES.values())
    assert len(house.uploads()) == len(found)


async def test_web_file_of_an_answer_downloads_byte_for_byte(house: Running, page: Page) -> None:
    many = "All.\n" + "\n".join(f"MEDIA:f{number}.txt" for number in range(12))
    address = "https://files.test/a.png"
    house.anthropic.script = [
        says("Here it is.\n\nMEDIA:./out/chart.png\nMEDIA: notes.txt\nMEDIA:notes.txt"),
        *(says(text) for text in ("MEDIA:f0.txt", many, f"MEDIA:{address}")),
    ]
    workspace = house.workspace()
    (workspace / "out").mkdir(parents=True)
    (workspace / "out" / "chart.png").write_bytes(PNG)
    (workspace / "notes.txt").write_bytes(TEXT)
    for number in range(12):
        (workspace / f"f{number}.txt").write_text("x")
    for number in range(1, 5):
        await page.say("draw")
        await page.answers(number)
    await house.idle()
    both, alone, ten, link = page.written()
    assert (both["text"], alone["text"]) == ("Here it is.", "")
    assert "https address" not in str(house.anthropic.requests[0].body["system"])  # the agent has no web_fetch
    assert link["text"] == f"(I could not attach this: I may not attach files from the web here.) {address}"
    assert [(file["name"], file["type"], file["size"]) for file in both["files"]] == [
        ("chart.png", "image/png", len(PNG)),
        ("notes.txt", "text/plain", len(TEXT)),
    ]
    picture, notes = [await page.http.get(f"/api/files/{file['id']}") for file in both["files"]]
    assert (picture.content, notes.content) == (PNG, TEXT)
    assert "MEDIA" not in "".join(page.drafts())
    assert [file["name"] for file in alone["files"]] == ["f0.txt"]
    assert (len(ten["files"]), ten["text"].count("could not attach")) == (10, 2)
    assert f'href="{address}"' in link["html"]


OUT_OF_REACH = [
    *("missing.txt", "big.bin", "../outside.txt", "/etc/passwd", "link.txt", "folder", "fifo", "file:///etc/passwd"),
    "~/x",
]


async def test_web_file_that_cannot_be_attached_is_a_sentence(tmp_path: Path) -> None:
    more = "limits: { fileBytes: 1000 }"
    async with running(tmp_path, more=more, feishu=WEB) as house, opened(house.url) as page:
        workspace = house.workspace()
        (workspace / "folder").mkdir(parents=True)
        (workspace / "big.bin").write_bytes(b"x" * 1001)
        (workspace.parent / "outside.txt").write_text("secret")
        (workspace / "link.txt").symlink_to(workspace.parent / "outside.txt")
        os.mkfifo(workspace / "fifo")
        named = "\n".join(f"MEDIA:{path}" for path in OUT_OF_REACH)
        house.anthropic.script = [says(f"Done.\n{named}"), says(named)]
        await page.say("please send them to me")
        await page.answers(1)
        await page.say("and alone, 请")
        first, second = await page.answers(2)
        done, _, *sentences = first.splitlines()
        assert (done, len(second.splitlines())) == ("Done.", len(OUT_OF_REACH))
        for path, english, chinese in zip(OUT_OF_REACH, sentences, second.splitlines(), strict=True):
            assert english.startswith("(I could not attach the file `"), path
            assert re.split("[/:]", path)[-1] in english
            assert "没能附上" in chinese, path
        assert [it["files"] for it in page.written()] == [[], []]


async def test_web_file_size_and_count_are_limited(tmp_path: Path) -> None:
    limit = 2 * 1_048_576
    more = f"limits: {{ fileBytes: {limit} }}"
    async with running(tmp_path, more=more, feishu=WEB) as house, opened(house.url) as page:

        async def chunks(size: int) -> Any:
            for at in range(0, size, 1_048_576):
                yield b"x" * min(1_048_576, size - at)

        ids = [(await kept(page, b"x" * limit, "a.bin"))["id"], (await kept(page, b"", "empty"))["id"]]
        for content in (b"x" * (limit + 1), chunks(limit + 1)):
            answer = await page.http.post("/api/files", params={"name": "b"}, content=content)
            assert answer.status_code == 413
            assert answer.json() == {
                "error": "The file is larger than 2 MiB (limits.fileBytes).",
                "code": "file-too-large",
            }
        ids += [(await kept(page, b"x", f"f{number}.txt"))["id"] for number in range(9)]
        answer = await page.say("eleven", files=ids)
        assert answer.status_code == 400
        assert answer.json()["error"]
        assert await page.chats() == []
        assert (await page.say("ten", files=ids[1:])).status_code == 200
        await page.answers(1)
        assert len(uploads(house)) == 10


async def test_web_file_missing_is_told_before_acceptance(house: Running, page: Page) -> None:
    file = await kept(page, b"x", "a.txt")
    await page.say("here", files=[file["id"]], chat="c_first_one")
    await page.answers(1)
    await page.http.delete("/api/chats/c_first_one")
    answer = await page.say("again", files=[file["id"]])
    assert answer.status_code == 400
    assert "Attach it again" in answer.json()["error"]
    assert (await page.http.get(f"/api/files/{file['id']}")).status_code == 404


SHOWN = [
    (PNG, "image/png", "image/png", "inline"),
    (PNG, "text/html", "image/png", "inline"),
    (b"<script>", "image/png", "application/octet-stream", "attachment"),
    (b"<script>", "text/html", "text/html", "attachment"),
    (b"<svg onload=alert(1)>", "image/svg+xml", "image/svg+xml", "attachment"),
    (b"GIF89a<script>", "text/html", "image/gif", "inline"),
    (b"x", "text/html; charset=utf-7", "text/html", "attachment"),
    (b"x", "TEXT/Plain", "text/plain", "attachment"),
    (b"x", "nonsense", "application/octet-stream", "attachment"),
    (b"x", "a/b c", "application/octet-stream", "attachment"),
    (b"x", "", "application/octet-stream", "attachment"),
    (b"x", "a/" + "b" * 100, "application/octet-stream", "attachment"),
]


async def test_web_file_uploads_cannot_run_as_our_page(page: Page) -> None:
    for data, sent, type_, disposition in SHOWN:
        file = await kept(page, data, "a", sent)
        answer = await page.http.get(f"/api/files/{file['id']}")
        assert answer.headers["content-type"].partition(";")[0] == file["type"] == type_, sent
        assert answer.headers["content-disposition"].startswith(disposition)
        assert answer.headers["content-security-policy"] == "default-src 'none'; sandbox"
        assert answer.headers["x-content-type-options"] == "nosniff"
        saved = await page.http.get(f"/api/files/{file['id']}?download")
        assert saved.headers["content-disposition"].startswith("attachment")
