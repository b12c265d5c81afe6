"""The text that an approver reads before deciding: the complete call, exactly, with nothing hidden in it and nothing that
could pose as the gateway's own words; and the command line's lines of requests and grants."""

import hashlib
import json
import re
import unicodedata
from datetime import tzinfo
from typing import Any

from agents.prompt.fences import unseen
from agents.sentences import Language, language_for
from channels.message import MessageContext
from channels.moment import clock, iso
from gateway.store.approval_records import Approval, Grant

SHOWN_CHARS_MAX = 24_000
"""Characters of a call: a longer one is refused."""
VALUE_CHARS = 200
_HINTS = {
    r"\|\s*(?:sudo\s+)?(?:ba|z|da|k)?sh\b|\|\s*(?:python|perl|ruby|node)": (
        "pipes into a shell",
        "通过管道交给 shell 执行",
    ),
    r"\b(?:curl|wget|nc|ncat|ssh|scp|rsync|ftp|telnet)\b|https?://": ("uses the network", "访问网络"),
    r"\b(?:sudo|doas|su)\b": ("wants more rights", "提升权限"),
    r"\brm\s+(?:-\w*[rf]|--recursive|--force)|\b(?:shred|mkfs|dd)\b": ("deletes", "删除数据"),
    r">\s*/(?!dev/null\b)|\btee\s+/": ("writes outside its folder", "写入工作目录之外"),
}
_ALPHABETS = (
    "letters of several alphabets in one word: it may only look like another",
    "同一个词混用多种字母：可能是形近字",
)
_WRITTEN_TOGETHER = frozenset(("CJK", "HIRAGANA", "KATAKANA", "KATAKANA-HIRAGANA", "HANGUL", "BOPOMOFO", "IDEOGRAPHIC"))
"""First words of the Unicode names of letters that appear beside Latin ones without a space and resemble none of them."""
_BLANKS = "\u2800\U0001d159"
"""Symbols that show nothing: the empty braille cell, the note without a head."""
_LABELS = {
    "folder": ("Folder", "目录"),
    "sandbox": ("Sandbox", "沙箱"),
    "network": ("Network", "网络"),
    "timeout": ("Time limit", "时限"),
}
_WORDS = {
    "en": ("Approval needed:", "Agent", "Requested by", "Chat", "Size", "Expires", "Answer with one of these lines:"),
    "zh": ("需要审批：", "智能体", "请求人", "会话", "大小", "有效至", "请用以下任一行回复："),
}


def visible(text: str) -> tuple[str, bool]:
    r"""The text with what shows nothing, or not itself, as an escape such as `\u202e`; whether there was any."""
    shown = "".join(_escape(char) if _is_hidden(char) else char for char in text)
    return shown, shown != text


def _is_hidden(char: str) -> bool:
    is_blank = unseen(char) or char.isspace() or char in _BLANKS or unicodedata.category(char) in ("Mn", "Me")
    return is_blank and char not in "\n "


def _mixes_alphabets(text: str) -> bool:
    words = (it for it in re.findall(r"[^\W\d_]+", text) if not it.isascii())
    return any(len({unicodedata.name(it, "").split(" ")[0] for it in word} - _WRITTEN_TOGETHER) > 1 for word in words)


def _escape(char: str) -> str:
    return f"\\u{ord(char):04x}" if ord(char) < 0x10000 else f"\\U{ord(char):08x}"


def fenced(text: str) -> str:
    """A code block that nothing in it can end."""
    longest = max((len(run) for run in re.findall("`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}\n{text}\n{fence}"


def value(text: str) -> str:
    """The text as code on one line, safely."""
    shown = visible(text)[0].replace("\n", "\\n").replace("`", "'")
    return f"`{shown if len(shown) <= VALUE_CHARS else shown[: VALUE_CHARS - 1] + '…'}`"


def answers(approval: Approval) -> list[str]:
    return [it for it in ("allow-once", "allow-always", "deny") if it != "allow-always" or approval.always]


def reply_lines(approval: Approval) -> list[str]:
    return [f"/approve {approval.id} {it}" for it in answers(approval)]


def request_text(approval: Approval, origin: MessageContext, zone: tzinfo) -> str:
    request = json.loads(approval.request)
    lang = language_for(origin)
    zh = lang == "zh"
    head, agent, requester, chat, size, expires, answer = _WORDS[lang]
    data = request["text"].encode(errors="surrogatepass")
    shown, hidden = visible(request["text"])
    who = f"{value(approval.requester)}{f' ({value(origin.sender.name)})' if origin.sender.name else ''}"
    facts = {agent: value(approval.agent), requester: who, chat: value(f"{origin.channel}:{origin.chat.id}")}
    facts |= {_LABELS.get(name, (name, name))[zh]: value(str(it)) for name, it in request["facts"].items()}
    unit, colon = ("字节，", "：") if zh else ("bytes, ", ": ")
    facts[size] = f"{len(data)} {unit}SHA-256 `{hashlib.sha256(data).hexdigest()[:12]}`"
    facts[expires] = clock(approval.expires, zone)
    lines = [f"**{head}** {value(approval.tool)}", *(f"- {name}{colon}{text}" for name, text in facts.items())]
    lines += ["", fenced(shown), ""]
    if hidden:
        escapes = "The call contains invisible characters; they are shown as `\\u…`."
        lines += ["其中含有不可见字符，已显示为 `\\u…`。" if zh else escapes, ""]
    hints = [words[zh] for pattern, words in _HINTS.items() if re.search(pattern, request["text"])]
    hints += [_ALPHABETS[zh]] if _mixes_alphabets(request["text"]) else []
    if hints:
        lead, comma = ("提示（仅供参考）：", "；") if zh else ("Hints, and no more than that: ", "; ")
        lines += [lead + comma.join(hints), ""]
    lines += [answer, *(f"- `{line}`" for line in reply_lines(approval))]
    return "\n".join(lines)


def facts(it: Approval | Grant, zone: tzinfo) -> dict[str, Any]:
    """The JSON form: `kind` is `pending` or `grant`."""
    request = json.loads(it.request)
    shared = {"id": it.id, "agent": it.agent, "tool": request["tool"], "text": request["text"], "digest": it.digest}
    if isinstance(it, Grant):
        used, ends = (None if at is None else iso(at, zone) for at in (it.last_used_at, it.expires))
        of_grant = {"by": it.granted_by, "since": iso(it.granted_at, zone), "uses": it.uses, "lastUsed": used}
        return {"kind": "grant", **shared, **of_grant, "expires": ends}
    origin = {"requester": it.requester, "session": it.sid, "since": iso(it.created, zone)}
    return {"kind": "pending", **shared, **origin, "expires": iso(it.expires, zone)}


def line(it: dict[str, Any]) -> str:
    who = f"by {it['by']}, uses {it['uses']}" if it["kind"] == "grant" else f"for {it['requester']}"
    return f"{it['id']}  {it['kind']}  {it['agent']}  {it['tool']}  until {it['expires']}  {who}  {value(it['text'])}"


def outcome_text(approval: Approval, lang: Language) -> str:
    """The outcome of a request, in a line."""
    zh, by = lang == "zh", value(approval.decided_by or "")
    tool, id_ = value(approval.tool), approval.id
    match approval.state:
        case "denied":
            en, cn = f"{id_}: {tool} was denied by {by}.", f"{id_}：{tool} 已被 {by} 拒绝。"
        case "expired":
            en, cn = f"{id_}: {tool} expired; nobody decided in time.", f"{id_}：{tool} 已过期，无人在时限内审批。"
        case "cancelled" | "undeliverable":
            en, cn = f"{id_}: {tool} was cancelled; nothing ran.", f"{id_}：{tool} 已取消，没有执行。"
        case "pending":
            en, cn = f"{id_}: {tool} still waits for a decision.", f"{id_}：{tool} 仍在等待审批。"
        case _:
            decision = approval.decision or ""
            en, cn = (
                f"{id_}: {tool} was approved by {by} ({decision}).",
                f"{id_}：{tool} 已由 {by} 批准（{decision}）。",
            )
    return cn if zh else en
