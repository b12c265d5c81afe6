"""Render what an approver reads before deciding: the complete and exact call, with nothing hidden and nothing that
could imitate the gateway's own text. Also the command line's view of requests and grants."""

import hashlib
import json
import re
import unicodedata
from collections.abc import Mapping
from datetime import tzinfo
from pathlib import Path
from typing import Any, TypeAlias

from agents.config import AgentConfig
from agents.language import Language
from agents.prompt.fences import unseen
from channels.message import Folded, MessageContext
from channels.moment import clock, iso
from channels.plain import plain
from gateway.store.approvals import Approval, Grant
from gateway.store.contacts import COMMAND_LINE
from gateway.store.owners import BY_CLAIM
from gateway.store.sessions import LOCAL_PERSON, person_of

SHOWN_CHARS_MAX = 24_000
"""The longest call in characters; a longer one is rejected."""
VALUE_CHARS = 200
_HINTS = {
    r"\|\s*(?:sudo\s+)?(?:ba|z|da|k)?sh\b|\|\s*(?:python|perl|ruby|node)": (
        "pipes into a shell",
        "通过管道交给 shell 执行",
    ),
    r"\b(?:curl|wget|nc|ncat|ssh|scp|rsync|ftp|telnet)\b|https?://": ("uses the network", "访问网络"),
    r"\b(?:sudo|doas|su)\b": ("asks for more privileges", "提升权限"),
    r"\brm\s+(?:-\w*[rf]|--recursive|--force)|\b(?:shred|mkfs|dd)\b": ("deletes", "删除数据"),
    r">\s*/(?!dev/null\b)|\btee\s+/": ("writes outside its folder", "写入工作目录之外"),
}
_ALPHABETS = (
    "mixes alphabets within one word, so it may imitate another name",
    "同一个词混用多种字母：可能是形近字",
)
_WRITTEN_TOGETHER = frozenset(("CJK", "HIRAGANA", "KATAKANA", "KATAKANA-HIRAGANA", "HANGUL", "BOPOMOFO", "IDEOGRAPHIC"))
"""Alphabets (first words of Unicode letter names) that are written next to Latin letters without a space and
resemble none."""
_BLANKS = "\u2800\U0001d159"
"""Symbols that render as nothing: the empty braille cell and the note without a head."""
_LABELS = {
    "folder": ("Folder", "目录"),
    "sandbox": ("Sandbox", "沙箱"),
    "network": ("Network", "网络"),
    "timeout": ("Time limit", "时限"),
}
_VALUES = {"no": "否", "yes": "是", "required": "必需", "none": "无", "public addresses": "仅公网地址"}
_WORDS = {
    "en": ("Details", "Agent", "Tool", "Requested by", "Chat", "Size", "Expires"),
    "zh": ("详情", "智能体", "工具", "请求人", "会话", "大小", "有效至"),
}
_TYPED = {"en": "Without buttons, answer with one of these lines:", "zh": "没有按钮时，请用以下任一行回复："}
_QUESTIONS = {
    "en": "**Run this command?** {agent} wants to, for {who}. It runs {walls}in {place}, {network}.",
    "zh": "**运行以下命令？** 由 {agent} 提出，请求人：{who}。{walls}在{place}中运行，{network}。",
}
_CALLS = {
    "en": "**Allow this call of {tool}?** {agent} wants to make it, for {who}.",
    "zh": "**允许以下 {tool} 调用？** 由 {agent} 提出，请求人：{who}。",
}
_OWN_FOLDER = ("its own folder", "它自己的目录")
_NETWORKS = {
    "no": ("offline", "不联网"),
    "yes": ("with network access", "可联网"),
    "public addresses": ("with the public network", "可访问公网"),
}
_SANDBOXES = {"required": ("in a sandbox, ", "沙箱内，"), "none": ("**without a sandbox**, ", "**没有沙箱**，")}
_NAME_CHARS = 40
_OUR_MARKS = str.maketrans({"…": "..", "✓": "", "✗": "", "·": "・"})
_STACKED = re.compile("[\u0300-\u036f\u0483-\u0489\u1ab0-\u1aff\u1dc0-\u1dff\u20d0-\u20ff\ufe20-\ufe2f]+")
"""Marks drawn above and below a letter: two of them are enough for every language."""
_ID_CHARS = 4
_YOU = {"en": "you", "zh": "你"}
_PAGE = {"en": "this machine's page", "zh": "本机网页"}
_WAYS = {
    COMMAND_LINE: ("the command line", "命令行"),
    BY_CLAIM: ("the claim code", "认领码"),
}
Called: TypeAlias = Mapping[str, str]
"""Display names by `channel:id`, as the platforms report them."""
_NOBODY: Called = {}


def visible(text: str) -> tuple[str, bool]:
    r"""Return the text with invisible and deceptive characters as escapes such as `\u202e`, and whether there were
    any."""
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
    """Return a code block that its content cannot close."""
    longest = max((len(run) for run in re.findall("`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}\n{text}\n{fence}"


def value(text: str) -> str:
    """Return the text as inline code on one line, safe for untrusted text."""
    line = visible(text)[0].replace("\n", "\\n").replace("`", "'")
    return f"`{line if len(line) <= VALUE_CHARS else line[: VALUE_CHARS - 1] + '…'}`"


def answers(approval: Approval) -> list[str]:
    return [it for it in ("allow-once", "allow-always", "deny") if it != "allow-always" or approval.always]


def reply_lines(approval: Approval) -> list[str]:
    return [f"/approve {approval.id} {it}" for it in answers(approval)]


def person(who: str, called: str | None, language: Language, *, reader: str = "") -> str:
    """Name a user in Markdown: `王磊 · …000a`. Anyone can choose a name, so the end of the id follows it; without a
    name the full id is shown. `reader` is the user whose direct chat shows it."""
    if who and who == reader:
        return _YOU[language]
    if who == LOCAL_PERSON:
        return _PAGE[language]
    if who in _WAYS:
        return _WAYS[who][language == "zh"]
    shown = label(who, called)
    return value(who) if shown == who else plain(shown)


def label(who: str, called: str | None) -> str:
    """Return the same as plain text, for a page or a terminal."""
    id_, name = who.partition(":")[2], name_of(called)
    if not name or name == id_:
        return who
    id_ = name_of(id_)
    return f"{name} · {id_ if len(id_) <= 2 * _ID_CHARS else '…' + id_[-_ID_CHARS:]}"


def name_of(called: str | None) -> str:
    """Return a name on one short line, without hidden characters, text direction marks or anything like our own
    marks."""
    kept = "".join(char for char in unicodedata.normalize("NFC", called or "") if char.isspace() or not unseen(char))
    line = " ".join(_STACKED.sub(lambda match: match[0][:2], kept).translate(_OUR_MARKS).split())
    return line if len(line) <= _NAME_CHARS else line[: _NAME_CHARS - 2].rstrip() + ".."


def request_text(
    approval: Approval,
    origin: MessageContext,
    lang: Language,
    *,
    called: Called = _NOBODY,
    reader: str = "",
    agent: AgentConfig | None = None,
) -> str:
    """Return the question, the exact call and hints about it; none of this is ever folded. `agent` is the config of
    the agent that asks."""
    request = json.loads(approval.request)
    zh = lang == "zh"
    shown, hidden = visible(request["text"])
    called = {person_of(origin): origin.sender.name or "", **called}
    who = (", " if lang == "en" else "、").join(
        person(it, called.get(it), lang, reader=reader) for it in approval.requester.split(", ")
    )
    lines = [_question(approval, request["facts"], who, lang, agent), "", fenced(shown), ""]
    if hidden:
        escapes = "The call contains invisible characters; they are shown as `\\u…`."
        lines += ["其中含有不可见字符，已显示为 `\\u…`。" if zh else escapes, ""]
    hints = [words[zh] for pattern, words in _HINTS.items() if re.search(pattern, request["text"])]
    hints += [_ALPHABETS[zh]] if _mixes_alphabets(request["text"]) else []
    if hints:
        lead, comma = ("提示（仅供参考）：", "；") if zh else ("Hints, and no more than that: ", "; ")
        lines += [lead + comma.join(hints), ""]
    return "\n".join(lines).rstrip()


def _question(
    approval: Approval, facts: Mapping[str, object], who: str, lang: Language, agent: AgentConfig | None
) -> str:
    """Return the question: who wants to run what, and where. The folder is named by its path unless it is the
    agent's default."""
    zh = lang == "zh"
    name, tool = plain(agent.name) if agent and agent.name else value(approval.agent), value(approval.tool)
    if not {"folder", "network"} <= facts.keys():
        return _CALLS[lang].format(agent=name, tool=tool, who=who)
    network = _NETWORKS.get(str(facts["network"]), (value(str(facts["network"])),) * 2)[zh]
    walls = _SANDBOXES.get(str(facts.get("sandbox", "")), ("", ""))[zh]
    folder = str(facts["folder"])
    place = (
        _OWN_FOLDER[zh] if agent and _is_own(agent, Path(folder)) else value(folder) if not zh else f" {value(folder)} "
    )
    return _QUESTIONS[lang].format(agent=name, place=place, walls=walls, network=network, who=who)


def _is_own(agent: AgentConfig, folder: Path) -> bool:
    """Return whether it is the agent's default folder: any other may hold anything, so its path is shown."""
    return folder.parts[-2:] == ("workspaces", agent.id) and folder == Path(agent.workspace_dir).resolve()


def request_details(
    approval: Approval, origin: MessageContext, lang: Language, zone: tzinfo, called: Called = _NOBODY
) -> Folded:
    """Return the attributes of the call with full ids, and the reply lines for chats without buttons."""
    request, zh = json.loads(approval.request), lang == "zh"
    title, agent, tool, asked, chat, size, expires = _WORDS[lang]
    data = request["text"].encode(errors="surrogatepass")
    called = {person_of(origin): origin.sender.name or "", **called}
    people = [(it, name_of(called.get(it))) for it in approval.requester.split(", ")]
    facts = {
        agent: value(approval.agent),
        tool: value(approval.tool),
        asked: ", ".join(f"{value(it)} {plain(name)}".rstrip() for it, name in people),
        chat: value(f"{origin.channel}:{origin.chat.id}"),
    }
    for name, it in request["facts"].items():
        facts[_LABELS.get(name, (name, name))[zh]] = value(_VALUES.get(str(it), str(it)) if zh else str(it))
    unit, colon = ("字节，", "：") if zh else ("bytes, ", ": ")
    facts[size] = f"{len(data)} {unit}SHA-256 `{hashlib.sha256(data).hexdigest()[:12]}`"
    facts[expires] = clock(approval.expires, zone)
    lines = [f"- {name}{colon}{text}" for name, text in facts.items()]
    lines += ["", _TYPED[lang], *(f"- `{line}`" for line in reply_lines(approval))]
    return Folded(title=title, text="\n".join(lines))


def facts(it: Approval | Grant, zone: tzinfo) -> dict[str, Any]:
    """Return the JSON form: `kind` is `pending` or `grant`."""
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


def outcome_text(approval: Approval, lang: Language, called: str | None = None, *, reader: str = "") -> str:
    """Return the outcome of a request on one line: who decided, and about which call. An allowed call may later be
    found changed and not run; only the decision is known here. `called` is the decider's name."""
    decider, call = approval.decided_by or "", value(json.loads(approval.request)["text"])
    by = person(decider, called, lang, reader=reader)
    by, cn_by = by[:1].upper() + by[1:] if by in (_YOU["en"], _PAGE["en"]) else by, f"{by} "
    if by in (_YOU["zh"], _PAGE["zh"]):
        cn_by = by
    match approval.state:
        case "denied":
            en, cn = f"✗ {by} denied it: {call}", f"✗ {cn_by}已拒绝：{call}"
        case "expired":
            en, cn = f"✗ Expired; nobody decided in time: {call}", f"✗ 已过期，无人在时限内审批：{call}"
        case "undeliverable":
            en, cn = f"✗ Could not be shown in full, so nothing ran: {call}", f"✗ 未能完整显示，没有执行：{call}"
        case "cancelled":
            en, cn = f"✗ Cancelled; nothing ran: {call}", f"✗ 已取消，没有执行：{call}"
        case "pending":
            en, cn = f"Still waiting for a decision: {call}", f"仍在等待审批：{call}"
        case _ if approval.decision == "allow-always":
            en, cn = f"✓ {by} allowed it always: {call}", f"✓ {cn_by}已始终允许：{call}"
        case _:
            en, cn = f"✓ {by} allowed it once: {call}", f"✓ {cn_by}已允许（仅此一次）：{call}"
    return cn if lang == "zh" else en
