"""Files through the emulated Bot API: uploads, names of what is there already, downloads, and every limit on the way."""

import struct
from typing import Any

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.channels.telegram_calls import ALICE, TEAM, Clock, ask, call, emulator, refusal
from tests.emulators.telegram.emulator import TelegramEmulator
from tests.emulators.telegram.files import UPLOAD_BYTES_MAX, check_upload
from tests.emulators.telegram.requests import Upload, parse_multipart
from tests.emulators.telegram.rules import Refusal

PNG = b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR" + struct.pack(">II", 640, 480)
JPEG = b"\xff\xd8\xff\xe0\x00\x04ab\xff\xc0\x00\x0b\x08" + struct.pack(">HH", 480, 640) + b"\x00" * 9


@pytest.fixture
def telegram() -> TelegramEmulator:
    return emulator()


async def upload(
    telegram: TelegramEmulator, kind: str, content: bytes, *, name: str = "a.pdf", **form: Any
) -> httpx.Response:
    form = {"chat_id": ALICE, **form}
    mime_type = "application/pdf" if kind == "document" else "image/png"
    path = f"/bot{telegram.token}/send{kind.title()}"
    return await ask(telegram, path, data=form, files={kind: (name, content, mime_type)})


async def test_an_uploaded_file_is_sent_can_be_sent_again_and_fetched(telegram: TelegramEmulator) -> None:
    content = b"%PDF-1.7 \r\n\x00\xff--"
    answer = await upload(telegram, "document", content, name="报告.pdf", caption="<b>Report</b>", parse_mode="HTML")
    document = answer.json()["result"]["document"]
    assert (document["file_name"], document["mime_type"], document["file_size"]) == ("报告.pdf", "application/pdf", 15)
    assert answer.json()["result"]["caption_entities"] == [{"offset": 0, "length": 6, "type": "bold"}]
    again = await call(telegram, "sendDocument", chat_id=TEAM, document=document["file_id"])
    assert again["document"] == document
    assert [(sent.kind, sent.text, sent.file_id) for sent in telegram.messages] == [
        ("document", "Report", document["file_id"]),
        ("document", "", document["file_id"]),
    ]
    file = await call(telegram, "getFile", file_id=document["file_id"])
    assert file["file_size"] == 15
    assert (await fetch(telegram, file["file_path"])).content == content
    assert isinstance(telegram.now, Clock)
    telegram.now.seconds += 3_601
    assert (await fetch(telegram, file["file_path"])).status_code == 404


async def fetch(telegram: TelegramEmulator, path: str, *, token: str | None = None) -> httpx.Response:
    transport = httpx.ASGITransport(telegram.app)
    async with httpx.AsyncClient(transport=transport, base_url="http://telegram") as client:
        return await client.get(f"/file/bot{token or telegram.token}/{path}")


async def test_a_path_is_good_only_once_it_was_given_out_and_with_the_token(telegram: TelegramEmulator) -> None:
    assert (await fetch(telegram, "documents/file_0.pdf")).status_code == 404
    assert (await fetch(telegram, "x", token="7000000001:" + "x" * 35)).status_code == 401


async def test_a_file_can_be_attached_by_name(telegram: TelegramEmulator) -> None:
    path = f"/bot{telegram.token}/sendDocument"
    form = {"chat_id": ALICE, "document": "attach://part"}
    answer = await ask(telegram, path, data=form, files={"part": ("a.txt", b"a", "text/plain")})
    assert answer.json()["result"]["document"]["file_name"] == "a.txt"
    answer = await ask(telegram, path, data=form, files={"other": ("a.txt", b"a", "text/plain")})
    assert (answer.status_code, answer.json()["ok"]) == (400, False)


@pytest.mark.parametrize("picture", [PNG, JPEG], ids=["png", "jpeg"])
async def test_a_picture_has_several_sizes_the_largest_last(telegram: TelegramEmulator, picture: bytes) -> None:
    sizes = (await upload(telegram, "photo", picture)).json()["result"]["photo"]
    assert [(size["width"], size["height"]) for size in sizes] == [(90, 67), (640, 480)]
    again = await call(telegram, "sendPhoto", chat_id=ALICE, photo=sizes[-1]["file_id"])
    assert again["photo"][-1]["file_id"] == telegram.messages[0].file_id == telegram.messages[1].file_id


def png(width: int, height: int) -> bytes:
    return PNG[:16] + struct.pack(">II", width, height)


@pytest.mark.parametrize(
    ("kind", "content", "form"),
    [
        ("photo", b"not a picture", {}),
        ("photo", png(9_000, 1_001), {}),
        ("photo", png(2_100, 100), {}),
        ("photo", PNG + bytes(10 * 1024 * 1024), {}),
        ("document", b"", {}),
        ("document", b"a", {"caption": "a" * 1025}),
        ("document", b"a", {"caption": "<b>", "parse_mode": "HTML"}),
        ("document", b"a", {"text": "a"}),
    ],
    ids=lambda value: "" if isinstance(value, bytes) else None,
)
async def test_uploads_that_are_refused(
    telegram: TelegramEmulator, kind: str, content: bytes, form: dict[str, Any]
) -> None:
    answer = await upload(telegram, kind, content, **form)
    assert (answer.status_code, answer.json()["ok"]) == (400, False)
    assert telegram.messages == []


def test_an_upload_above_fifty_megabytes_is_too_large() -> None:
    with pytest.raises(Refusal) as raised:
        check_upload("document", Upload(name="a", mime_type="a/b", content=bytes(UPLOAD_BYTES_MAX + 1)))
    assert raised.value.code == 413


async def test_a_file_above_twenty_megabytes_cannot_be_fetched(telegram: TelegramEmulator) -> None:
    wrong = "Bad Request: wrong file_id or the file is temporarily unavailable"
    assert await refusal(telegram, "getFile", file_id="unknown") == wrong
    for size, path in ((20 * 1024 * 1024, "documents/file_0.zip"), (20 * 1024 * 1024 + 1, None)):
        facts = {"file_id": f"id-{size}", "file_unique_id": "u", "file_size": size, "mime_type": "application/zip"}
        telegram.message_update({"document": facts}, chat=ALICE)
        telegram.files.learn(facts)
        if path:
            assert (await call(telegram, "getFile", file_id=facts["file_id"]))["file_path"] == path
        else:
            assert await refusal(telegram, "getFile", file_id=facts["file_id"]) == "Bad Request: file is too big"


@given(st.binary(max_size=60), st.text(st.characters(exclude_categories=["Cs", "Cc"]), max_size=20))
def test_a_form_carries_any_bytes_and_any_text(content: bytes, text: str) -> None:
    request = httpx.Request("POST", "http://t", data={"caption": text}, files={"document": ("a.bin", content)})
    fields, files = parse_multipart(request.headers["content-type"], request.read())
    assert (fields, files["document"].content) == ({"caption": text}, content)
