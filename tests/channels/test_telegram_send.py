"""Sending through the real client to a Telegram on loopback: forms, refusals, and what is never said twice or aloud."""

import asyncio
import logging
import traceback
from dataclasses import replace
from typing import Any

import pytest
from structlog.testing import capture_logs

from channels.channel import DeliveryError, Gone, RateLimited, Refused, Unreachable
from channels.message import Button, Chat, Outbound, Sender, Target
from tests.channels.contexts import context
from tests.channels.telegram_bot import SILENCE, Body, connected, refusal
from tests.channels.telegram_samples import BOT_TOKEN

PERSON, GROUP = "500000011", "-1002000000041"
NO_THREAD = refusal(400, "Bad Request: message thread not found")
NO_REPLY = refusal(400, "Bad Request: message to be replied not found")
BAD_ENTITIES = refusal(400, "Bad Request: can't parse entities: Entity begins after the end of the text: hi")


def part(
    text: str = "**hi**", *, chat: str = PERSON, reply_to: str | None = "105", thread: str | None = None
) -> Outbound:
    return Outbound(target=Target(chat=chat, thread=thread, reply_to=reply_to), text=text)


async def sent(part: Outbound, *answers: Any, **settings: Any) -> list[Body]:
    """What Telegram gets of a part, where it answers so."""
    async with connected(**settings) as (telegram, channel):
        telegram.answers["sendMessage"] = list(answers)
        await channel.send(part, "key-1")
        return telegram.sent


async def test_telegram_reply_has_entities_and_no_preview() -> None:
    async with connected() as (telegram, channel):
        telegram.answers["sendMessage"] = [{"message_id": 160}]
        assert await channel.send(part(), "key-1") == "160"
        assert telegram.sent == [
            {
                "chat_id": 500000011,
                "text": "hi",
                "entities": [{"type": "bold", "offset": 0, "length": 2}],
                "link_preview_options": {"is_disabled": True},
                "reply_parameters": {"message_id": 105, "allow_sending_without_reply": True},
            }
        ]
        assert telegram.paths == [f"/bot{BOT_TOKEN}/sendMessage"]
    assert (await sent(part(), linkPreviews=True))[0]["link_preview_options"] == {"is_disabled": False}


BUTTONS = (
    Button(label="Allow once", token="ap_allow:1", style="primary"),
    Button(label="  永远允许,不再询问 👨‍👩‍👧\n" * 9, token="x" * 60, style="danger"),
    Button(label="No", token="n"),
)
KEYS = [
    [{"text": "Allow once", "callback_data": "ap_allow:1", "style": "primary"}],
    [{"text": BUTTONS[1].shown, "callback_data": "x" * 60, "style": "danger"}],
    [{"text": "No", "callback_data": "n"}],
]
NOT_MODIFIED = refusal(400, "Bad Request: message is not modified: specified new message content and reply markup are")


async def test_telegram_buttons_are_kept_or_removed_by_an_edit() -> None:
    assert (await sent(replace(part(), buttons=BUTTONS)))[0]["reply_markup"] == {"inline_keyboard": KEYS}
    assert len(BUTTONS[1].shown) <= 40
    async with connected() as (telegram, channel):
        telegram.answers["editMessageText"] = [{"message_id": 160}, NOT_MODIFIED, BAD_ENTITIES, True]
        for buttons in (BUTTONS, (), ()):
            edit = replace(part("**done**", thread="12", reply_to="105"), buttons=buttons, replaces="160")
            assert await channel.send(edit, "key-1") == "160"
        first, second, third, plain = telegram.of("editMessageText")
        entities = [{"type": "bold", "offset": 0, "length": 4}]
        body = {"chat_id": 500000011, "message_id": 160, "text": "done"}
        body |= {"link_preview_options": {"is_disabled": True}}
        assert first == body | {"entities": entities, "reply_markup": {"inline_keyboard": KEYS}}
        assert second == third == body | {"entities": entities}
        assert plain == body
        assert telegram.sent == []


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (refusal(400, "Bad Request: message to edit not found"), Gone),
        (refusal(400, "Bad Request: message can't be edited"), Gone),
        (refusal(400, "Bad Request: MESSAGE_ID_INVALID"), Gone),
        (refusal(403, "Forbidden: bot was blocked by the user"), Gone),
        (refusal(400, "Bad Request: BUTTON_DATA_INVALID"), Refused),
        (refusal(429, "Too Many Requests: retry after 3", retry_after=3), RateLimited),
        (refusal(500, "Internal Server Error"), Unreachable),
    ],
)
async def test_telegram_edit_failure_is_never_a_new_message(answer: Body, error: type[DeliveryError]) -> None:
    async with connected() as (telegram, channel):
        telegram.answers["editMessageText"] = [answer]
        with pytest.raises(error):
            await channel.send(replace(part(), replaces="160"), "key-1")
        assert telegram.sent == []


async def test_telegram_edit_of_a_moved_groups_message_is_gone() -> None:
    async with connected() as (telegram, channel):
        channel._outgoing.follow(GROUP, "-1002000000099")
        for edit in (replace(part(chat=GROUP), replaces="160"), replace(part(), replaces="om_1")):
            with pytest.raises(Gone):
                await channel.send(edit, "key-1")
        assert telegram.calls == []


@pytest.mark.parametrize(
    ("place", "name", "number"),
    [
        *(({"chat": GROUP, "thread": it}, "message_thread_id", 12 if it == "12" else None) for it in ("12", None, "1")),
        *(({"reply_to": it}, "reply_parameters", None) for it in (None, "0", "-100:77", "")),
    ],
)
async def test_telegram_reply_stays_in_its_topic(place: dict[str, Any], name: str, number: int | None) -> None:
    assert (await sent(part(**place)))[0].get(name) == number


async def test_telegram_entities_refused_fall_back_to_plain_text() -> None:
    with capture_logs() as logs:
        _, again = await sent(part("**hi** [docs](https://example.com/)"), BAD_ENTITIES)
    assert (again["text"], "entities" in again) == ("hi docs (https://example.com/)", False)
    assert [line["description"] for line in logs if line["event"] == "telegram_error"] == ["can't parse entities"]


@pytest.mark.parametrize(
    ("place", "answer", "left_out"),
    [
        ({"chat": GROUP, "thread": "12"}, NO_REPLY, "reply_parameters"),
        ({"thread": "345"}, NO_THREAD, "message_thread_id"),
        ({"chat": GROUP, "thread": "12"}, NO_THREAD, None),
    ],
    ids=["a lost message", "a lost topic of a direct chat", "a lost topic before everybody's eyes"],
)
async def test_what_is_lost_is_left_out_but_a_topic_of_a_group_is_gone(
    place: dict[str, Any], answer: Body, left_out: str | None
) -> None:
    async with connected() as (telegram, channel):
        telegram.answers["sendMessage"] = [answer]
        if left_out is None:
            with pytest.raises(Gone):
                await channel.send(part(**place), "key-1")
            assert len(telegram.sent) == 1
        else:
            await channel.send(part(**place), "key-1")
            first, again = telegram.sent
            assert again == {name: value for name, value in first.items() if name != left_out}


async def test_telegram_supergroup_move_is_remembered() -> None:
    moved = refusal(400, "Bad Request: group chat was upgraded to a supergroup chat", migrate_to_chat_id=-1002000000041)
    async with connected() as (telegram, channel):
        telegram.answers["sendMessage"] = [moved]
        await channel.send(part(chat="-4000000031"), "key-1")
        await channel.send(part(chat="-4000000031"), "key-2")
        assert [sent["chat_id"] for sent in telegram.sent] == [-4000000031, -1002000000041, -1002000000041]
        assert ["reply_parameters" in sent for sent in telegram.sent] == [True, False, False]


async def test_telegram_supergroup_move_in_circles_ends() -> None:
    def moved(body: dict[str, Any]) -> dict[str, Any]:
        return refusal(400, "Bad Request: group chat was upgraded", migrate_to_chat_id=body["chat_id"] - 1)

    async with connected() as (telegram, channel):
        telegram.answers["sendMessage"] = [moved] * 20
        with pytest.raises(Refused):
            await channel.send(part(chat=GROUP), "key-1")
        assert len(telegram.sent) == 5


REFUSALS: list[tuple[int, str, type[DeliveryError]]] = [
    (429, "Too Many Requests: retry after 7", RateLimited),
    *((400, f"Bad Request: {text}", Gone) for text in ("chat not found", "TOPIC_CLOSED")),
    (403, "Forbidden: something new", Gone),
    *((code, "Not Found", Refused) for code in (401, 404, 413)),
    *(
        (400, f"Bad Request: {text}", Refused)
        for text in ("not enough rights to send text messages", "message is too long", "something new about business")
    ),
    (502, "Bad Gateway", Unreachable),
]
BROKEN: list[tuple[tuple[int, bytes], type[DeliveryError]]] = [
    *(((200, raw), Unreachable) for raw in (b"", b'{"result": 7}')),
    *(((status, b"<html>"), Unreachable) for status in (502, 302)),
    ((404, b"<html>no such page</html>"), Refused),
    ((429, b"slow down"), RateLimited),
]


@pytest.mark.parametrize(
    ("answer", "error"), [*((refusal(code, text), error) for code, text, error in REFUSALS), *BROKEN]
)
async def test_telegram_refusal_is_one_of_four_errors(answer: Any, error: type[DeliveryError]) -> None:
    async with connected() as (telegram, channel):
        telegram.answers["sendMessage"] = [answer]
        with pytest.raises(error) as raised:
            await channel.send(part("the text is nobody's business"), "key-1")
        status = answer["error_code"] if isinstance(answer, dict) else answer[0]
        assert (type(raised.value), raised.value.code) == (error, str(status))
        assert "business" not in str(raised.value)
        assert len(telegram.sent) == 1


async def test_telegrams_word_on_how_long_to_wait_is_passed_on_and_kept() -> None:
    async with connected() as (telegram, channel):
        telegram.answers["sendMessage"] = [refusal(429, "Too Many Requests: retry after 7", retry_after=7)]
        with pytest.raises(RateLimited) as raised:
            await channel.send(part(), "key-1")
        assert raised.value.retry_after_seconds == 7
        with pytest.raises(RateLimited):  # not asked again
            await channel.send(part(), "key-2")
        await channel.send(part(chat="500000012"), "key-3")
        assert len(telegram.sent) == 2


@pytest.mark.parametrize(
    ("settings", "maybe_arrived"), [({"timeoutSeconds": 1.5}, True), ({"apiRoot": "http://127.0.0.1:9"}, False)]
)
async def test_telegram_ambiguous_send_unless_it_never_left(settings: dict[str, Any], maybe_arrived: bool) -> None:
    async with connected(**settings) as (telegram, channel):
        telegram.answers["sendMessage"] = [SILENCE]
        with pytest.raises(Unreachable) as raised:
            await channel.send(part(), "key-1")
        assert (raised.value.maybe_arrived, len(telegram.sent)) == (maybe_arrived, int(maybe_arrived))


@pytest.mark.parametrize(
    ("answer", "settings"),
    [
        (refusal(400, "Bad Request: chat not found"), {}),
        (refusal(404, f"Not Found: /bot{BOT_TOKEN}/sendMessage"), {}),
        (SILENCE, {}),
        (SILENCE, {"apiRoot": "http://127.0.0.1:9"}),
    ],
    ids=["refused", "echoed", "silent", "nobody"],
)
async def test_telegram_token_is_in_no_log_exception_or_repr(
    answer: Any, settings: dict[str, Any], caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    caplog.set_level(logging.DEBUG)
    async with connected(timeoutSeconds=0.5, **settings) as (telegram, channel):
        telegram.answers["sendMessage"] = [answer]
        with pytest.raises(DeliveryError) as raised:
            await channel.send(part(), "key-1")
        shown, error = "".join(traceback.format_exception(raised.value)), raised.value
        while error := error.__cause__ or error.__context__:  # type: ignore[assignment]
            shown += repr(error) + str(vars(error)) + repr(getattr(error, "_request", None))
        out = capsys.readouterr()
        everything = shown + caplog.text + out.out + out.err + repr(channel) + repr(vars(channel))
        assert BOT_TOKEN.partition(":")[2] not in everything
        assert caplog.records


async def test_telegram_identity_is_asked_once_and_retried_after_a_failure() -> None:
    async with connected(known=False) as (telegram, channel):
        telegram.answers["getMe"] = [refusal(500, "Internal Server Error"), {"id": 7}]
        for _ in range(2):
            with pytest.raises(Unreachable):
                await channel.learn_identity(5)
        await asyncio.gather(*(channel.learn_identity(5) for _ in range(10)))
        assert channel._me.username == "samples_helper_bot"
        assert [method for method, _ in telegram.calls] == ["getMe"] * 3


async def test_telegram_wrong_token_is_refused_with_a_hint() -> None:
    other = "7000000001:another-token-that-opens-no-door-0000"
    async with connected(known=False, botToken=other) as (_, channel):
        with pytest.raises(Refused, match="@BotFather"):
            await channel.learn_identity(5)


async def test_a_person_without_a_name_is_called_by_the_id() -> None:
    async with connected() as (telegram, channel):
        nameless = context("telegram", Chat(id=PERSON, kind="direct"), sender=Sender(id=PERSON))
        assert (await channel.enrich(nameless)).sender.name == PERSON
        assert telegram.calls == []


@pytest.mark.parametrize(
    ("chat", "text", "shown"),
    [
        ("-100200", "Wait. @Other_Bot, please", "Wait."),
        ("-100200", "@other_bot, please", "…"),
        ("-100200", "@alice and @robotics, see", "@alice and @robotics, see"),
        ("500000011", "@other_bot, please", "@other_bot, please"),
    ],
)
async def test_telegram_draft_in_a_group_calls_no_bot(chat: str, text: str, shown: str) -> None:
    """The other bot would answer an unfinished text; the whole one has the mention."""
    async with connected() as (telegram, channel):
        handle = await channel.open_draft(part(text, chat=chat), "key")
        for step in (channel.update_draft, channel.send):
            await step(replace(part(text, chat=chat), replaces=handle), "key")
        assert [body["text"] for _, body in telegram.calls if "text" in body] == [shown, shown, text]
