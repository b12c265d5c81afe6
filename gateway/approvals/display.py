"""The text that an approver reads before deciding: the complete call, exactly, with nothing hidden in it and nothing that
could pose as the gateway's own words; and the command line's lines of requests and grants."""

import hashlib
import json
import re
import unicodedata
from collections.abc import Mapping
from datetime import tzinfo
from typing import Any

from agents.language import Language
from agents.prompt.fences import unseen
from channels.message import Folded, MessageContext
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
_VALUES = {"no": "否", "yes": "是", "required": "必需", "none": "无", "public addresses": "仅公网地址"}
_WORDS = {
    "en": ("Details", "Agent", "Tool", "Chat", "Size", "Expires", "Without buttons, answer with one of these lines:"),
    "zh": ("详情", "助手", "工具", "会话", "大小", "有效至", "没有按钮时，请用以下任一行回复："),
}
_QUESTIONS = {
    "en": "**May {agent} run this{place}, {network}?** {who} asks for it.",
    "zh": "**是否允许 {agent}{place}运行以下命令（{network}）？** 请求人：{who}。",
}
_CALLS = {
    "en": "**May {agent} call {tool} with this?** {who} asks for it.",
    "zh": "**是否允许 {agent} 以此调用 {tool}？** 请求人：{who}。",
}
_PLACES = {"en": " in {}", "zh": " 在 {} 中"}
_NETWORKS = {
    "no": ("without network", "不联网"),
    "yes": ("with network", "可联网"),
    "public addresses": ("with the public network", "可访问公网"),
}
_NO_SANDBOX = ("and without a sandbox", "无沙箱")


def visible(text: str) -> tuple[str, bool]:
    r"""The text with what shows nothing, or not itself, as an escape such as `\u202e`; whether there was any."""
    text_shown = "".join(_escape(char) if _is_hidden(char) else char for char in text)
    return text_shown, text_shown != text


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
    line = visible(text)[0].replace("\n", "\\n").replace("`", "'")
    return f"`{line if len(line) <= VALUE_CHARS else line[: VALUE_CHARS - 1] + '…'}`"


def answers(approval: Approval) -> list[str]:
    return [it for it in ("allow-once", "allow-always", "deny") if it != "allow-always" or approval.always]


def reply_lines(approval: Approval) -> list[str]:
    return [f"/approve {approval.id} {it}" for it in answers(approval)]


def request_text(approval: Approval, origin: MessageContext, lang: Language) -> str:
    """The question, the exact call, and what is to be noticed in it: nothing of this is ever folded."""
    request = json.loads(approval.request)
    zh = lang == "zh"
    shown, hidden = visible(request["text"])
    lines = [_question(approval, request["facts"], origin, lang), "", fenced(shown), ""]
    if hidden:
        escapes = "The call contains invisible characters; they are shown as `\\u…`."
        lines += ["其中含有不可见字符，已显示为 `\\u…`。" if zh else escapes, ""]
    hints = [words[zh] for pattern, words in _HINTS.items() if re.search(pattern, request["text"])]
    hints += [_ALPHABETS[zh]] if _mixes_alphabets(request["text"]) else []
    if hints:
        lead, comma = ("提示（仅供参考）：", "；") if zh else ("Hints, and no more than that: ", "; ")
        lines += [lead + comma.join(hints), ""]
    return "\n".join(lines).rstrip()


def _question(approval: Approval, facts: Mapping[str, object], origin: MessageContext, lang: Language) -> str:
    """One sentence: who wants what to run where. A name is shown with its id, since anybody can take a name."""
    zh = lang == "zh"
    who = value(approval.requester)
    if origin.sender.name:
        who += f"（{value(origin.sender.name)}）" if zh else f" ({value(origin.sender.name)})"
    agent, tool = value(approval.agent), value(approval.tool)
    if not {"folder", "network"} <= facts.keys():
        return _CALLS[lang].format(agent=agent, tool=tool, who=who)
    network = _NETWORKS.get(str(facts["network"]), (value(str(facts["network"])),) * 2)[zh]
    if facts.get("sandbox") == "none":
        network += ("，" if zh else " ") + _NO_SANDBOX[zh]
    place = _PLACES[lang].format(value(str(facts["folder"])))
    return _QUESTIONS[lang].format(agent=agent, place=place, network=network, who=who)


def request_details(approval: Approval, origin: MessageContext, lang: Language, zone: tzinfo) -> Folded:
    """The facts of the call, and the lines for people without buttons."""
    request, zh = json.loads(approval.request), lang == "zh"
    title, agent, tool, chat, size, expires, answer = _WORDS[lang]
    data = request["text"].encode(errors="surrogatepass")
    facts = {
        agent: value(approval.agent),
        tool: value(approval.tool),
        chat: value(f"{origin.channel}:{origin.chat.id}"),
    }
    for name, it in request["facts"].items():
        facts[_LABELS.get(name, (name, name))[zh]] = value(_VALUES.get(str(it), str(it)) if zh else str(it))
    unit, colon = ("字节，", "：") if zh else ("bytes, ", ": ")
    facts[size] = f"{len(data)} {unit}SHA-256 `{hashlib.sha256(data).hexdigest()[:12]}`"
    facts[expires] = clock(approval.expires, zone)
    lines = [f"- {name}{colon}{text}" for name, text in facts.items()]
    lines += ["", answer, *(f"- `{line}`" for line in reply_lines(approval))]
    return Folded(title=title, text="\n".join(lines))


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
    """The outcome of a request in a line: by whom, and of which call. A call that was allowed may still be found changed
    and not run: only that it was allowed is known here."""
    by, call = value(approval.decided_by or ""), value(json.loads(approval.request)["text"])
    match approval.state:
        case "denied":
            en, cn = f"✗ Denied by {by}: {call}", f"✗ 已被 {by} 拒绝：{call}"
        case "expired":
            en, cn = f"✗ Expired, nobody decided in time: {call}", f"✗ 已过期，无人在时限内审批：{call}"
        case "undeliverable":
            en, cn = f"✗ Could not be shown whole, nothing ran: {call}", f"✗ 未能完整显示，没有执行：{call}"
        case "cancelled":
            en, cn = f"✗ Cancelled, nothing ran: {call}", f"✗ 已取消，没有执行：{call}"
        case "pending":
            en, cn = f"Still waiting for a decision: {call}", f"仍在等待审批：{call}"
        case _ if approval.decision == "allow-always":
            en, cn = f"✓ Allowed always by {by}: {call}", f"✓ 已由 {by} 始终允许：{call}"
        case _:
            en, cn = f"✓ Allowed once by {by}: {call}", f"✓ 已由 {by} 允许一次：{call}"
    return cn if lang == "zh" else en
