"""Spoken answers: the text first, then a voice message on Telegram and Feishu and a player on the page."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from channels.message import Outbound, Target
from gateway.config.load import load
from gateway.config.problems import ConfigErrors
from gateway.outbox.outbox import OutboxPayload, Speech, payload_json
from tests.emulators.models.script import says
from tests.emulators.speech import KEY, OPUS, SpeechEmulator
from tests.loopback import serve_on_loopback
from tests.running import AGENTS, ALICE, ALICE_CHAT, feishu_emulator, running
from tests.stories.channels.test_files import FeishuRoom, TelegramRoom, room
from tests.stories.channels.test_speech_and_quotes import voice
from tests.web_page import WEB, Page, opened

PLATFORMS = pytest.mark.parametrize("platform", ["telegram", "feishu"])
ANSWER = "Ready. See `x` at https://example.com\n\n```\ncode\n```"


def settings(url: str, more: str) -> str:
    return f"""
speech: {{ model: voices/tts-1, voice: nova, {more} }}
transcription: {{ baseUrl: "{url}/v1", apiKey: {KEY}, model: whisper-1 }}
"""


def provider(url: str) -> str:
    return f'  voices: {{ api: openai-chat, baseUrl: "{url}/v1", apiKey: {KEY} }}'


@asynccontextmanager
async def speaking(
    folder: Path, platform: str, more: str, *, agents: str = AGENTS, besides: str = ""
) -> AsyncIterator[tuple[FeishuRoom, SpeechEmulator]]:
    speech = SpeechEmulator()
    async with serve_on_loopback(speech.app) as url:
        config = settings(url, more) + besides
        async with room(folder, platform, more=config, agents=agents, providers=provider(url)) as it:
            it.house.anthropic.script = [says(ANSWER)] * 9
            yield it, speech


def sent(it: FeishuRoom) -> list[str | bytes]:
    """The bot's messages in order: a text, or the bytes of a voice message."""
    if isinstance(it, TelegramRoom):
        stored = it.bot.telegram.files.stored
        return [
            stored[m.file_id or ""].content or b"" if m.kind == "voice" else m.text
            for m in it.bot.telegram.messages
            if m.kind
        ]
    feishu = it.house.feishu
    sounds = [feishu.resources[key].data for key, kind in feishu.uploads.items() if kind == "opus"]
    return [sounds.pop(0) if m.msg_type == "audio" else m.text for m in feishu.messages]


async def said(it: FeishuRoom, event: Any, count: int) -> list[str | bytes]:
    """The bot's newest `count` messages once this has happened and nothing is left to do."""
    before = len(sent(it))
    await it.happens(event)
    await it.house.until(lambda: len(sent(it)) >= before + count)
    await it.house.idle()
    assert len(sent(it)) == before + count
    return sent(it)[before:]


def text(it: FeishuRoom, words: str) -> Any:
    if isinstance(it, TelegramRoom):
        return it.bot.telegram.text_update(words, chat=it.chat)
    return it.house.feishu.text_event(words, sender=ALICE, chat=ALICE_CHAT)


async def shown_messages(page: Page) -> list[dict[str, Any]]:
    return list((await page.conversation())["messages"])


SPOKEN = "Ready. See x at"


@PLATFORMS
async def test_speech_mirrors_a_voice_message_after_the_text(tmp_path: Path, platform: str) -> None:
    async with speaking(tmp_path, platform, "mode: mirror") as (it, speech):
        (answer,) = await said(it, text(it, "hello"), 1)
        assert isinstance(answer, str)
        assert speech.spoken == []
        answer, sound = await said(it, voice(it), 2)
        assert "https://example.com" in str(answer)
        assert sound == OPUS + SPOKEN.encode()
        assert (speech.spoken, speech.refused) == ([SPOKEN], [])
        attempts: Any = it.house.gateway.lanes._outbox._attempt
        assert attempts.__self__._spoken_files == {}  # what was sent is kept in the database alone


@PLATFORMS
@pytest.mark.parametrize("fault", [401, 404, "no sound", "hangs"])
async def test_speech_failure_leaves_the_text_and_one_log_line(
    tmp_path: Path, platform: str, fault: int | str, capsys: pytest.CaptureFixture[str]
) -> None:
    async with speaking(tmp_path, platform, "mode: always, timeoutSeconds: 1") as (it, speech):
        speech.faults = [fault, fault]
        assert len(await said(it, text(it, "hello"), 1)) == 1
        speech.released.set()
        speech.faults = []
        assert len(await said(it, text(it, "again"), 2)) == 2
        assert it.house.counted('clawgate_dead_total{kind="part"} 0.0') or not it.house.counted("dead_total{")
    logged = capsys.readouterr().out + capsys.readouterr().err
    assert logged.count("answer_not_spoken") == 1
    assert KEY not in logged


async def test_speech_retries_a_busy_server_once(tmp_path: Path) -> None:
    async with speaking(tmp_path, "telegram", "mode: always") as (it, speech):
        speech.faults = [503]
        assert len(await said(it, text(it, "hello"), 2)) == 2
        assert speech.spoken == [SPOKEN, SPOKEN]


AGENT = AGENTS.replace("id: helper", "id: helper\n      speech: { mode: off }", 1)


async def test_speech_is_off_for_an_agent_that_says_so(tmp_path: Path) -> None:
    assert "speech" in AGENT
    async with speaking(tmp_path, "feishu", "mode: always", agents=AGENT) as (it, speech):
        assert len(await said(it, text(it, "hello"), 1)) == 1
        assert speech.spoken == []


async def test_speech_skips_commands_silence_and_pure_code(tmp_path: Path) -> None:
    async with speaking(tmp_path, "feishu", "mode: always") as (it, speech):
        assert len(await said(it, text(it, "/whoami"), 1)) == 1
        it.house.anthropic.script = [says("```\nonly code\n```"), says("__SILENT__")]
        assert len(await said(it, text(it, "code, please"), 1)) == 1
        await it.happens(text(it, "nothing, please"))
        await it.house.requested(2)
        await it.house.idle()
        assert speech.spoken == []


async def test_speech_cost_counts_towards_budgets(tmp_path: Path) -> None:
    besides = "budgets: { sender: { costPerDay: 0.04 } }"
    more = "mode: always, pricePerMillionChars: 1000"  # 15 characters cost 0.015, and each answer 0.01
    async with speaking(tmp_path, "feishu", more, besides=besides) as (it, speech):
        await said(it, text(it, "hello"), 2)
        await said(it, text(it, "again"), 2)
        (refused,) = await said(it, text(it, "once more"), 1)
        assert "budget" in str(refused)
        assert len(speech.spoken) == 2


async def test_speech_never_carries_a_configured_secret(tmp_path: Path) -> None:
    async with speaking(tmp_path, "feishu", "mode: always") as (it, speech):
        it.house.anthropic.script = [says(f"The key is {KEY}, keep it.")]
        await said(it, text(it, "the key?"), 2)
        assert KEY not in "".join(speech.spoken)


async def test_speech_on_the_page_is_a_file_of_the_answer(tmp_path: Path) -> None:
    speech = SpeechEmulator()
    async with serve_on_loopback(speech.app) as url:
        more = settings(url, "mode: always")
        house_of = running(tmp_path, more=more, feishu=WEB, providers=provider(url), script=[says(ANSWER)])
        async with house_of as house, opened(house.url) as page:
            await page.say("hello")
            await house.until(lambda: bool(speech.spoken))
            await house.idle()
            (file,) = [it for message in await shown_messages(page) for it in message.get("files", ())]
            assert (file["name"], file["type"]) == ("answer.ogg", "audio/ogg")
            sound = await page.http.get(f"/api/files/{file['id']}")
            assert sound.content == OPUS + SPOKEN.encode()


async def test_speech_cut_off_by_a_restart_is_sent_once_after_it(tmp_path: Path) -> None:
    speech, feishu = SpeechEmulator(faults=["hangs"]), feishu_emulator()
    async with serve_on_loopback(speech.app) as url:
        more, providers = settings(url, "mode: always"), provider(url)
        async with running(tmp_path, emulator=feishu, script=[says(ANSWER)], more=more, providers=providers) as house:
            await house.say("hello")
            await house.until(lambda: bool(speech.spoken))
            assert [it.msg_type for it in feishu.messages] == ["interactive"]
        async with running(tmp_path, emulator=feishu, more=more, providers=providers) as house:
            await house.replies(2)
            await house.idle()
        assert [it.msg_type for it in feishu.messages] == ["interactive", "audio"]
        assert len({it.uuid for it in feishu.messages}) == 2
        speech.released.set()


def test_speech_part_survives_the_outbox_json() -> None:
    part = Outbound(target=Target(chat="c"), text="")
    payload = OutboxPayload(channel="feishu", account="default", part=part, speech=Speech(agent="a", text="hi"))
    assert payload_json.validate_json(payload_json.dump_json(payload)) == payload


@pytest.mark.parametrize(
    ("speech", "path"),
    [
        ("{ mode: always }", "speech.model"),
        ("{ model: tts-1 }", "speech.model"),
        ("{ model: nobody/tts-1 }", "speech.model"),
        ("{ model: anthropic/tts-1 }", "speech.model"),
        ("{ model: openai/tts-1, mode: sometimes }", "speech.mode"),
        ("{ model: openai/tts-1, maxChars: 5000 }", "speech.maxChars"),
    ],
)
def test_speech_settings_are_checked(tmp_path: Path, speech: str, path: str) -> None:
    file = tmp_path / "config.yaml"
    file.write_text(f"speech: {speech}\nchannels: {{ web: {{}} }}\n{AGENTS}", encoding="utf-8")
    with pytest.raises(ConfigErrors) as errors:
        load(file, {})
    assert [it.path for it in errors.value.problems] == [path]
