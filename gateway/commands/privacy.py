"""`/mydata` and `/forget`: what the bot holds about the person who asks, and its erasure.

The copy is a zip: `mydata.md` for people, `mydata.json` for programs, and the person's files. The erasure is the operator's
(`gateway.operate.sessions.erase`). It cannot run in the lane of a conversation that it erases, so the button leaves a row
of `later`, and `gateway.app.privacy` erases and answers.
"""

import asyncio
import io
import os
import stat
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import orjson
from pydantic import TypeAdapter

from agents.attachments import tag
from agents.language import Language
from agents.messages import message_json
from agents.prompt.inbound import spoken
from agents.workspaces import is_template, workspace_path
from channels.message import Button, Chat, File, MessageContext
from channels.moment import timestamp
from gateway.approvals.notices import OWN
from gateway.commands.command import CommandContext
from gateway.config.root import Config
from gateway.state.ending import Reply
from gateway.store import later
from gateway.store.erasure import PersonData, Portion
from gateway.store.holdings import HOLDINGS
from gateway.store.inbound import inbound_of
from gateway.store.later import Later
from gateway.store.sessions import message_in, person_of, session_parts
from tools.workspace import folder_of

FORGET, KEEP = "forget", "keep"
"""The acts of the buttons: `own:forget:MESSAGE`."""
BEGIN_SECONDS = 1.0
"""The answer to the button is sent before the erasure begins."""
_JSON = ("content", "body", "words", "payload", "request")


@dataclass(frozen=True, kw_only=True, slots=True)
class Erasure:
    """A person's wish to be forgotten, until they are answered. `removed` counts what went; None before."""

    context: MessageContext
    language: Language
    removed: Mapping[str, int] | None = None


erasure_json: TypeAdapter[Erasure] = TypeAdapter(Erasure)


async def forget(context: CommandContext) -> str | Reply:
    """Say what would go, and ask."""
    if context.message.chat.kind != "direct":
        return context.say("Send it to me in a direct chat.", "请在私聊中发送。")
    if context.arguments.endswith(" now") and not context.has_buttons:
        return await _begin(context)
    text = context.say(
        "This erases everything that I hold about you: conversations, files, notes, reminders, logins and usage, and in "
        "groups your messages with my answers. If you were let in by a code, you have to ask again. It cannot be undone. "
        "`/mydata` gives you a copy first.",
        "这会删除我保存的关于你的全部数据：对话、文件、笔记、提醒、登录和用量，以及你在群里的消息和我的回答。"
        "如果你是凭配对码获准使用的，之后需要重新申请。删除后无法恢复，可先发送 `/mydata` 获取副本。",
    )
    if context.is_owner:
        text += context.say(
            " An owner by a claim code is no owner afterwards.", "凭认领码成为的所有者，删除后不再是所有者。"
        )
    if not context.has_buttons:
        return text + context.say(" Send `/forget me now` to do it.", "确认删除请发送 `/forget me now`。")
    erase, keep = context.say("Erase everything", "全部删除"), context.say("Keep it", "保留")
    return Reply(
        text=text,
        buttons=(
            Button(label=erase, token=f"{OWN}{FORGET}:{context.turn}", style="danger"),
            Button(label=keep, token=f"{OWN}{KEEP}:{context.turn}"),
        ),
    )


async def decide(context: CommandContext, act: str, number: str) -> Reply | str:
    """A button under the question. It is of the person who was asked, and nobody else's."""
    body = await context.runtime.store.owners.message(int(number)) if number.isdecimal() else None
    if body is None or context.message.press is None:
        return context.not_your_button
    asked = inbound_of(body)
    if asked.command != FORGET or person_of(asked.context) != context.person:
        return context.not_your_button
    text = context.say("Nothing was erased.", "没有删除任何数据。") if act == KEEP else await _begin(context)
    return Reply(text=text, replaces=context.message.press.message_id)


async def _begin(context: CommandContext) -> str:
    """Leave the row that has the person erased. Idempotent per message."""
    now = context.runtime.now()
    wish = Erasure(context=context.message, language=context.language)
    row = Later(
        id=f"{later.FORGET}:{context.turn}",
        kind=later.FORGET,
        due=now + BEGIN_SECONDS,
        owner=None,
        place="",
        state="active",
        body=erasure_json.dump_json(wish).decode(),
        since=now,
    )
    await context.runtime.store.later.expect(row)
    context.ends.wake()
    return context.say("I erase it now, and tell you when it is done.", "正在删除，完成后我会告诉你。")


def erased_text(removed: Mapping[str, int], language: Language) -> str:
    """Return the counts of an erasure, to the person."""
    uploads = removed.get("upload", 0)
    counts = {name: count for name, count in removed.items() if name in HOLDINGS}
    if uploads:
        counts["file"] = counts.get("file", 0) + uploads
    zh = language == "zh"
    lines = [_counted(count, name, language) for name, count in counts.items() if count]
    listed = ("、" if zh else ", ").join(lines)
    if not listed:
        return "我没有保存任何关于你的数据。" if zh else "I held nothing about you."
    if zh:
        return f"已删除：{listed}。聊天平台、备份和模型厂商保存的内容不在其中。"
    return f"Erased: {listed}. What the platform, backups and the model's vendor keep is not among it."


def _counted(count: int, table: str, language: Language) -> str:
    title = HOLDINGS[table].title(language)
    return f"{count} {title}" if language == "zh" else f"{title} {count}"


async def mydata(context: CommandContext) -> str | Reply:
    """Send a zip with everything that is held about the sender."""
    channel = context.setup.channel(context.message)
    if context.message.chat.kind != "direct":
        return context.say("Send it to me in a direct chat.", "请在私聊中发送。")
    if channel is None or "media" not in channel.capabilities.directives:
        return context.say("I cannot send files here.", "这里无法发送文件。")
    names = context.message.channel, context.message.sender.id
    held = await context.runtime.store.people.held(*names)
    blobs = {}
    for row in held.tables.get("file", ()):
        if (found := await context.runtime.store.files.load(row["id"])) is not None:
            blobs[f"page/{row['id']}-{Path(row['name']).name}"] = found[1]
    data, left = await asyncio.to_thread(_packed, context, held, blobs)
    stored = await context.runtime.store.files.put(
        File(name="mydata.zip", type="application/zip", data=data), context.runtime.now()
    )
    text = context.say(
        "Everything that I hold about you: `mydata.md` to read, `mydata.json` for programs, and your files.",
        "我保存的关于你的全部数据：`mydata.md` 供阅读，`mydata.json` 供程序使用，另附你的文件。",
    )
    if left:
        text += context.say(
            f" {left} files are too large together; their names are in `mydata.md`. Ask the operator for them.",
            f"有 {left} 个文件合计过大，未附上，名称见 `mydata.md`，可向管理员索取。",
        )
    return Reply(text=text, files=(stored,))


def _packed(context: CommandContext, held: PersonData, blobs: Mapping[str, bytes]) -> tuple[bytes, int]:
    """Return the zip, and the number of files that did not fit in it."""
    now, scrub = context.runtime.now(), context.runtime.scrubber.scrub
    config, most = context.setup.config, context.setup.limits.file_bytes
    whole: dict[str, Any] = {"person": context.person, "at": datetime.fromtimestamp(now, UTC).isoformat()}
    whole["conversations"] = [_conversation(portion, rows) for portion, rows in held.conversations]
    whole |= {table: [_parsed(row) for row in rows] for table, rows in held.tables.items()}
    text = scrub(orjson.dumps(whole, option=orjson.OPT_INDENT_2, default=str).decode())
    files, left, kept = list(blobs.items()), [], []
    for portion, _ in held.conversations:
        person = context.message.channel, context.message.sender.id
        for folder in (*uploads_of(config, portion), *workspaces_of(config, portion, person, own=True)):
            files += _files_in(folder)
    size = len(text.encode(errors="replace"))
    for name, data in files:
        if size + len(data) > most:
            left.append(name)
        else:
            size += len(data)
            kept.append((name, data))
    readable = scrub("\n".join(_markdown(context, held, left)))
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr("mydata.md", readable.encode(errors="replace"))
        file.writestr("mydata.json", text.encode(errors="replace"))
        for name, data in kept:
            file.writestr(f"files/{name}", data)
    return packed.getvalue(), len(left)


def _conversation(portion: Portion, rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    place = session_parts(portion.sid)
    facts = {"agent": place.agent, "channel": place.channel, "account": place.account, "chat": place.chat}
    if portion.all_between:
        return facts | {"rows": [_parsed(row) for row in rows]}
    return facts | {"rows": [{"turn": it["turn"], "kind": it["kind"], "text": _text(it)} for it in rows]}


def _parsed(row: Mapping[str, Any]) -> dict[str, Any]:
    found = dict(row)
    for name in _JSON:
        with suppress(orjson.JSONDecodeError, KeyError, TypeError):
            found[name] = orjson.loads(found[name])
    return found


def _text(row: Mapping[str, Any]) -> str:
    if row["kind"] not in ("user", "steered", "assistant"):
        return ""
    with suppress(ValueError):
        return spoken(message_json.validate_json(row["content"])).strip()
    return ""


def _markdown(context: CommandContext, held: PersonData, left: Sequence[str]) -> Iterator[str]:
    zone, say = context.setup.config.server.zone, context.say
    yield f"# {say('What I hold about', '我保存的数据：')} {context.person}"
    yield ""
    yield timestamp(context.runtime.now(), zone)
    yield ""
    turns = sum(len(rows) for _, rows in held.conversations)
    for count, table in ((turns, "transcript"), *((len(rows), table) for table, rows in held.tables.items())):
        yield f"- {_counted(count, table, context.language)}"
    yield from (f"- {say('not attached', '未附上')}: {name}" for name in left)
    for note in held.tables.get("note", ()):
        yield from ("", f"{say('Note', '笔记')} {note['number']}: {note['text']}")
    for portion, rows in held.conversations:
        place = session_parts(portion.sid)
        yield from ("", f"## {place.agent} · {place.channel}:{place.chat}")
        for row in rows:
            if text := _text(row):
                yield from ("", f"**{say('you', '你') if row['kind'] != 'assistant' else place.agent}**", "", text)


def uploads_of(config: Config, portion: Portion) -> list[Path]:
    """Return the folders with the files that were sent in a portion."""
    uploads = folder_of(Path(config.tools.files.uploads_dir), portion.sid)
    return [uploads] if portion.whole else [uploads / tag(it) for it in sorted(portion.messages)]


def workspaces_of(
    config: Config, portion: Portion, person: tuple[str, str] | None, *, own: bool = False
) -> Iterator[Path]:
    """Yield the workspaces of a portion; with `own` only one that is this person's alone."""
    place = session_parts(portion.sid)
    template = next((it.workspace_dir for it in config.agents.list if it.id == place.agent), "")
    chat = Chat(id=place.chat, kind="direct" if portion.direct else "group", thread=place.thread)
    sender = person[1] if person else place.sender or ""
    is_own = bool(person) and is_template(template) and (portion.direct or "{sender}" in template)
    context = message_in(place.channel, place.account, chat, sender)
    path = Path(workspace_path(template, context)) if person or not is_template(template) else Path(template)
    if template and (is_own or not own) and (path.is_dir() or not person):
        yield path


def _files_in(folder: Path) -> Iterator[tuple[str, bytes]]:
    """Yield the files of a folder by their paths; no link of a command leads out of it."""
    with suppress(FileNotFoundError):
        for path, _, names, at in os.fwalk(folder, follow_symlinks=False):
            for name in sorted(names):
                with suppress(OSError):
                    handle = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=at)
                    with os.fdopen(handle, "rb") as file:
                        if stat.S_ISREG(os.fstat(handle).st_mode):
                            yield f"{folder.name}/{(Path(path) / name).relative_to(folder)}", file.read()
