"""Files in the web chat: what a person attaches reaches the agent, what an agent names reaches the person."""

import asyncio
import os
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.emulators.models.script import says
from tests.running import Running, running
from tests.stories.at_work import shown, spoken
from tests.web_page import WEB, Page, opened

PNG = bytes.fromhex(
    "89504e470d0a1a0a0000000d4948445200000001000000010806000000" + "1f15c4890000000d49444154789c6360f8cf500f0003860180"
    "5a347de00000000049454e44ae426082"
)
TEXT = b"\xe4\xbd\xa0\xe5\xa5\xbd\n<script>alert(1)</script>\x00\xff"


def uploads(house: Running) -> dict[str, bytes]:
    return {path.rpartition("/")[2]: data for path, data in house.uploads().items()}


async def kept(page: Page, data: bytes, name: str, type_: str = "application/octet-stream") -> dict[str, Any]:
    answer = await page.upload(data, name, type_)
    assert answer.status_code == 200, answer.text
    return dict(answer.json())


async def test_a_picture_is_shown_to_the_model_and_saved(tmp_path: Path) -> None:
    async with running(tmp_path, feishu=WEB) as house, opened(house.url) as page:
        file = await kept(page, PNG, "图.png", "image/png")
        assert (file["name"], file["type"], file["size"]) == ("图.png", "image/png", len(PNG))
        await page.say("what is this?", files=[file["id"]])
        await page.answers(1)
        assert shown(house)[1] == ["image/png"]
        assert uploads(house) == {"图.png": PNG}
        assert page.said("you")[0]["files"] == [file]


async def test_any_other_file_is_saved_and_the_model_is_told_the_path(tmp_path: Path) -> None:
    async with running(tmp_path, feishu=WEB) as house, opened(house.url) as page:
        files = [await kept(page, TEXT, "notes.txt", "text/plain"), await kept(page, b"2", "notes.txt", "text/plain")]
        await page.say("", files=[file["id"] for file in files])
        await page.answers(1)
        assert uploads(house) == {"notes.txt": TEXT, "notes-2.txt": b"2"}
        (path,) = [path for path in house.uploads() if path.endswith("/notes.txt")]
        told = spoken(house)
        assert f"saved as {path}" in told
        assert [chat["title"] for chat in await page.chats()] == ["notes.txt"]


async def test_what_is_sent_with_several_messages_of_one_turn_is_told_at_each(tmp_path: Path) -> None:
    async with running(tmp_path, script=[says("slow")], feishu=WEB) as house, opened(house.url) as page:
        house.line.hold()
        await page.say("begin")
        await house.requested(1)
        for name in ("one.txt", "two.txt"):
            await page.say(f"see {name}", files=[(await kept(page, name.encode(), name))["id"]])
        house.line.release()
        await page.answers(2)
        told = spoken(house)
        places = [told.index(word) for word in (": see one.txt", "/one.txt", ": see two.txt", "/two.txt")]
        assert places == sorted(places)
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


async def test_no_name_leads_out_of_its_folder_or_breaks_a_header(tmp_path: Path) -> None:
    async with running(tmp_path, feishu=WEB) as house, opened(house.url) as page:
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


async def test_a_file_that_the_answer_names_can_be_downloaded_byte_for_byte(tmp_path: Path) -> None:
    script = [says("Here it is.\n\nMEDIA:./out/chart.png\nMEDIA: notes.txt\nMEDIA:notes.txt")]
    async with running(tmp_path, script=script, feishu=WEB) as house, opened(house.url) as page:
        (house.workspace() / "out").mkdir(parents=True)
        (house.workspace() / "out" / "chart.png").write_bytes(PNG)
        (house.workspace() / "notes.txt").write_bytes(TEXT)
        await page.say("draw")
        assert await page.answers(1) == ["Here it is."]
        files = page.said()[0]["files"]
        assert [(file["name"], file["type"], file["size"]) for file in files] == [
            ("chart.png", "image/png", len(PNG)),
            ("notes.txt", "text/plain", len(TEXT)),
        ]
        picture, notes = [await page.http.get(f"/api/files/{file['id']}") for file in files]
        assert (picture.content, notes.content) == (PNG, TEXT)
        assert picture.headers["content-disposition"].startswith("inline")
        assert notes.headers["content-disposition"].startswith("attachment")
        assert "MEDIA" not in "".join(page.drafts())


async def test_an_answer_of_a_file_alone_is_one_message_with_it(tmp_path: Path) -> None:
    async with running(tmp_path, script=[says("MEDIA:a.txt")], feishu=WEB) as house, opened(house.url) as page:
        (house.workspace() / "a.txt").write_bytes(b"x")
        await page.say("give me the file")
        assert await page.answers(1) == [""]
        assert [file["name"] for file in page.said()[0]["files"]] == ["a.txt"]
        await house.idle()
        assert len(page.said()) == 1


OUT_OF_REACH = [
    "missing.txt",
    "big.bin",
    "../outside.txt",
    "/etc/passwd",
    "link.txt",
    "folder",
    "fifo",
    "file:///etc/passwd",
    "~/x",
]


@pytest.mark.parametrize("path", OUT_OF_REACH)
async def test_a_file_that_cannot_be_attached_is_a_sentence(tmp_path: Path, path: str) -> None:
    more = "limits: { fileBytes: 1000 }"
    script = [says(f"Done.\nMEDIA:{path}"), says(f"MEDIA:{path}")]
    async with running(tmp_path, script=script, more=more, feishu=WEB) as house, opened(house.url) as page:
        workspace = house.workspace()
        (workspace / "folder").mkdir(parents=True)
        (workspace / "big.bin").write_bytes(b"x" * 1001)
        (workspace.parent / "outside.txt").write_text("secret")
        (workspace / "link.txt").symlink_to(workspace.parent / "outside.txt")
        os.mkfifo(workspace / "fifo")
        await page.say("send it")
        await page.answers(1)
        await page.say("and alone, 请")
        first, second = await page.answers(2)
        name = path.rpartition(":")[2] if "://" in path else path
        assert first.startswith("Done.\n\n(The file `")
        assert name in first
        assert "无法附上" in second
        assert [it["files"] for it in page.said()] == [[], []]


async def test_an_address_is_told_as_a_link_and_not_fetched(tmp_path: Path) -> None:
    script = [says("MEDIA:https://files.test/a.png")]
    async with running(tmp_path, script=script, feishu=WEB) as house, opened(house.url) as page:
        await page.say("a picture")
        assert await page.answers(1) == ["<https://files.test/a.png>"]
        assert 'href="https://files.test/a.png"' in page.said()[0]["html"]


async def test_no_more_than_ten_files_go_out_and_the_others_are_named(tmp_path: Path) -> None:
    script = [says("All.\n" + "\n".join(f"MEDIA:f{n}.txt" for n in range(12)))]
    async with running(tmp_path, script=script, feishu=WEB) as house, opened(house.url) as page:
        for number in range(12):
            (house.workspace() / f"f{number}.txt").write_text("x")
        await page.say("all of them")
        (text,) = await page.answers(1)
        assert len(page.said()[0]["files"]) == 10
        assert text.count("could not be attached") == 2


async def test_a_file_of_the_limit_is_taken_and_one_byte_more_is_not(tmp_path: Path) -> None:
    limit = 20 * 1_048_576

    async def chunks(size: int) -> Any:
        for at in range(0, size, 1_048_576):
            yield b"x" * min(1_048_576, size - at)

    async with running(tmp_path, feishu=WEB) as house, opened(house.url) as page:
        assert (await kept(page, b"x" * limit, "a.bin"))["size"] == limit
        for content in (b"x" * (limit + 1), chunks(limit + 1)):
            answer = await page.http.post("/api/files", params={"name": "b"}, content=content)
            assert answer.status_code == 413
            assert answer.json() == {
                "error": "The file is larger than 20 MiB (limits.fileBytes).",
                "code": "file-too-large",
            }
        assert (await page.upload(b"", "empty")).json()["size"] == 0


async def test_ten_files_come_with_one_message_and_eleven_do_not(tmp_path: Path) -> None:
    async with running(tmp_path, feishu=WEB) as house, opened(house.url) as page:
        ids = [(await kept(page, b"x", f"f{number}.txt"))["id"] for number in range(11)]
        answer = await page.say("eleven", files=ids)
        assert answer.status_code == 400
        assert answer.json()["error"]
        assert await page.chats() == []
        assert (await page.say("ten", files=ids[:10])).status_code == 200
        await page.answers(1)
        assert len(uploads(house)) == 10


async def test_a_file_that_is_gone_is_told_before_the_message_is_taken(tmp_path: Path) -> None:
    async with running(tmp_path, feishu=WEB) as house, opened(house.url) as page:
        file = await kept(page, b"x", "a.txt")
        await page.say("here", files=[file["id"]], chat="c_first_one")
        await page.answers(1)
        await page.http.delete("/api/chats/c_first_one")
        answer = await page.say("again", files=[file["id"]])
        assert answer.status_code == 400
        assert "Attach it again" in answer.json()["error"]
        assert (await page.http.get(f"/api/files/{file['id']}")).status_code == 404


async def test_a_file_that_vanishes_before_its_turn_is_told_to_the_model_and_the_turn_goes_on(tmp_path: Path) -> None:
    async with running(tmp_path, script=[says("slow")], feishu=WEB) as house, opened(house.url) as page:
        house.line.hold()
        await page.say("first")
        await house.requested(1)
        await page.say("see this", files=[(await kept(page, b"x", "a.txt"))["id"]])
        with closing(sqlite3.connect(tmp_path / "data" / "clawgate.db", timeout=10)) as database, database:
            database.execute("DELETE FROM file")
        house.line.release()
        assert len(await page.answers(2)) == 2
        assert "a.txt, could not be fetched" in spoken(house)


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


async def test_only_real_pictures_are_shown_and_nothing_that_was_uploaded_can_act_as_ours(tmp_path: Path) -> None:
    async with running(tmp_path, feishu=WEB) as house, opened(house.url) as page:
        for data, told, type_, disposition in SHOWN:
            file = await kept(page, data, "a", told)
            answer = await page.http.get(f"/api/files/{file['id']}")
            assert answer.headers["content-type"].partition(";")[0] == file["type"] == type_, told
            assert answer.headers["content-disposition"].startswith(disposition)
            assert answer.headers["content-security-policy"] == "default-src 'none'; sandbox"
            assert answer.headers["x-content-type-options"] == "nosniff"
            saved = await page.http.get(f"/api/files/{file['id']}?download")
            assert saved.headers["content-disposition"].startswith("attachment")


async def test_an_upload_that_breaks_off_leaves_nothing(tmp_path: Path) -> None:
    async with running(tmp_path, feishu=WEB) as house:
        port = int(httpx.URL(house.url).port or 0)
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        head = (
            f"POST /api/files?name=a HTTP/1.1\r\nhost: 127.0.0.1:{port}\r\nx-clawgate: 1\r\ncontent-length: 100\r\n\r\n"
        )
        writer.write(head.encode() + b"half")
        await writer.drain()
        writer.close()
        await writer.wait_closed()
        async with opened(house.url) as page:
            await page.say("hello")
            await page.answers(1)
        with closing(sqlite3.connect(tmp_path / "data" / "clawgate.db", timeout=10)) as database:
            assert database.execute("SELECT count(*) FROM file").fetchone() == (0,)
