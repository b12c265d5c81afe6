"""aiogram as a judge: run by an interpreter that has it, in `.venv/judges`, never imported by the tests.

    python telegram_judge.py models FILE          what is wrong with the recorded calls and updates, as a JSON list
    python telegram_judge.py bot URL TOKEN CHAT   aiogram's own client uses the API at URL; what it understood, as JSON

Its models let unknown fields pass, for the sake of newer servers. Here none may be left over, at any depth.
"""

import asyncio
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from aiogram import Bot, methods, types  # type: ignore[import-not-found]
from aiogram.client.session.aiohttp import AiohttpSession  # type: ignore[import-not-found]
from aiogram.client.telegram import TelegramAPIServer  # type: ignore[import-not-found]
from aiogram.exceptions import TelegramAPIError  # type: ignore[import-not-found]
from pydantic import BaseModel, TypeAdapter, ValidationError


def complaints(record: dict[str, Any]) -> Iterator[str]:
    """`calls` are {method, body, result}, `updates` as they are sent; a refused call has no result."""
    for call in record["calls"]:
        model = getattr(methods, call["method"][0].upper() + call["method"][1:])
        yield from misfits(model, call["body"], call["method"], strict=True)
        if "result" in call:
            yield from misfits(model.__returning__, call["result"], f"the answer to {call['method']}")
    for update in record["updates"]:
        yield from misfits(types.Update, update, "the update")


def misfits(kind: Any, value: Any, where: str, *, strict: bool = False) -> Iterator[str]:
    """Strict for what we send; a time that is received is a number, which strictly is none."""
    try:
        parsed = TypeAdapter(kind).validate_json(json.dumps(value), strict=strict)
    except ValidationError as error:
        yield from (f"{where}: {found['loc']} {found['msg']}" for found in error.errors())
    else:
        yield from left_over(parsed, where)


def left_over(value: Any, where: str) -> Iterator[str]:
    """Fields that no model knows."""
    if isinstance(value, BaseModel):
        yield from (f"{where}: {type(value).__name__} has no {name}" for name in value.model_extra or ())
        for name in type(value).model_fields:
            yield from left_over(getattr(value, name), f"{where}.{name}")
    elif isinstance(value, list):
        for one in value:
            yield from left_over(one, where)


def entity(kind: str, offset: int, length: int) -> Any:
    return types.MessageEntity(type=kind, offset=offset, length=length)


async def converse(url: str, token: str, chat: int) -> dict[str, Any]:
    """What a bot does in a day, in an order in which each call needs the one before it."""
    session = AiohttpSession(api=TelegramAPIServer.from_base(url))
    async with Bot(token, session=session) as bot:
        me = await bot.get_me()
        await bot.delete_webhook(drop_pending_updates=False)
        await bot.set_my_commands([types.BotCommand(command="stop", description="Stop")])
        updates = await bot.get_updates(timeout=5, allowed_updates=["message", "callback_query"])
        message = next(update.message for update in updates if update.message)
        pressed = next(update.callback_query for update in updates if update.callback_query)
        reply = types.ReplyParameters(message_id=message.message_id, allow_sending_without_reply=True)
        sent = await bot.send_message(
            chat, "bold & code", entities=[entity("bold", 0, 4), entity("code", 7, 4)], reply_parameters=reply
        )
        await bot.answer_callback_query(pressed.id, text="seen")
        try:
            await bot.answer_callback_query(pressed.id)
        except TelegramAPIError as error:
            twice = error.message
        try:
            await bot.send_message(chat, "short", entities=[entity("bold", 0, 9)])
        except TelegramAPIError as error:
            refused = error.message
        await bot.send_chat_action(chat, "typing")
        file = types.BufferedInputFile(b"some bytes", filename="notes.txt")
        document = (await bot.send_document(chat, file, caption="notes")).document
        fetched = await bot.download(document)
        await bot.set_webhook("https://bot.example.com/hook", secret_token="secret_word", allowed_updates=["message"])
        info = await bot.get_webhook_info()
        return {
            "me": me.username,
            "asked": [message.text, [entity.type for entity in message.entities or ()]],
            "replied": [sent.text, [entity.type for entity in sent.entities], sent.reply_to_message.text],
            "twice": twice,
            "refused": refused,
            "fetched": fetched.read().decode(),
            "webhook": [info.url, info.allowed_updates],
            "confirmed": [(await bot.delete_webhook()), len(await bot.get_updates(offset=updates[-1].update_id + 1))],
        }


def main() -> None:
    match sys.argv[1:]:
        case ["models", path]:
            verdict: Any = list(complaints(json.loads(Path(path).read_text(encoding="utf-8"))))
        case ["bot", url, token, chat]:
            verdict = asyncio.run(converse(url, token, int(chat)))
        case _:
            sys.exit(__doc__)
    sys.stdout.write(json.dumps(verdict))


if __name__ == "__main__":
    main()
