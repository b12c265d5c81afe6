"""Sentences for the user when a turn does not end in the model's own text: short, calm, in the user's language.

Never a provider's text, a path or an internal name; those go to the log.
"""

import math
from typing import Literal, assert_never

from agents.attachments import Untaken
from agents.language import Language
from agents.messages import ErrorKind, ModelError
from agents.turn import (
    Answered,
    Compaction,
    Declined,
    LimitReached,
    ModelFailed,
    Outcome,
    OverBudget,
    Payer,
    Period,
    RunnerFailed,
    TurnLimit,
)
from channels.bilingual import Bilingual
from tools.paths import called

PAUSE_SHOWN_SECONDS = 2.0
"""Pauses from this length are shown to the user."""


def failure(outcome: Outcome, language: Language) -> str:
    """Return the sentence that explains a missing answer."""
    match outcome:
        case ModelFailed(error=error):
            return _ERRORS[error.kind](language)
        case RunnerFailed():
            return _RUNNER_FAILED(language)
        case LimitReached(limit=limit):
            return _LIMITS[limit](language)
        case Declined():
            return _DECLINED(language)
        case OverBudget():
            return f"{_PAUSED(language)}{over_budget(outcome, language)}"
        case Answered():
            return _EMPTY(language)
        case _:
            assert_never(outcome)


def for_owner(sentence: str) -> str:
    """Return the sentence without the advice to contact the operator, for readers who are the operator."""
    for advice in _ADVICE:
        sentence = sentence.replace(advice, "")
    return sentence


def owner_told(sentence: str) -> str:
    """Return the sentence with "the owner was notified" instead of the advice to notify them."""
    return sentence.replace(_ADVICE[0], " I have notified the owner.").replace(_ADVICE[3], "，已通知所有者")


def beneath(line: str, language: Language) -> str:
    return f"（{line}）" if language == "zh" else f"({line})"


def retrying(error: ModelError, seconds: float, language: Language) -> str:
    """Return the status shown until a retry after `seconds`."""
    is_busy = error.kind in ("rate_limited", "overloaded", "server")
    if seconds < PAUSE_SHOWN_SECONDS:
        return (_RETRYING if is_busy else _CONNECTING)(language)
    return (_RETRYING_IN if is_busy else _CONNECTING_IN)(language).format(seconds=round(seconds))


def runner_interrupted(language: Language) -> str:
    """Return the answer to a message whose program was interrupted by a restart."""
    return _RUNNER_INTERRUPTED(language)


def runner_waits(title: str, language: Language) -> str:
    """Return the line below an answer that waits for an approval of the call `title`."""
    return _RUNNER_WAITS(language).format(title=title.replace("`", "'"))


def not_attached(path: str, language: Language) -> str:
    """Return the line below an answer whose file could not be attached."""
    return _NOT_ATTACHED(language).format(name=" ".join(called(path).replace("`", "").split())[-80:])


def not_fetched(code: str, bytes_max: int, language: Language) -> str:
    """Return the line below an answer whose web file failed, shown before its address; `code` is the ToolError's."""
    why = _NOT_FETCHED.get(code, _NOT_FETCHED["FETCH_FAILED"])(language)
    return _NOT_ATTACHED_FROM_WEB(language).format(why=why.format(size=_size(bytes_max)))


def not_taken(it: Untaken, language: Language) -> str:
    """Return the line below an answer to a message with an unusable file or recording."""
    if it.name:
        what = f"`{' '.join(it.name.replace('`', '').split())[-80:]}`"
    else:
        what = (_RECORDING if it.kind == "audio" else _FILE)(language)
    return _NOT_TAKEN(language).format(what=what, why=_UNTAKEN[it.reason](language).format(size=_size(it.bytes_max)))


def _size(bytes_max: int) -> str:
    return f"{bytes_max / 1_048_576:.3g} MB" if bytes_max >= 1_048_576 else f"{bytes_max:,} B"


def log_in_directly(language: Language) -> str:
    """Return the line in a group under an answer that waits for its person's login."""
    return _LOG_IN(language)


def compacted(compaction: Compaction, language: Language) -> str | None:
    """Return the line below an answer about compaction, if any was tried."""
    return _COMPACTED[compaction](language) if compaction != "none" else None


def missed(due: str, language: Language) -> str:
    """Return the line before something late because the gateway was down at `due`."""
    return _MISSED(language).format(due=due)


def late(seconds: float, language: Language) -> str:
    """Return the line before a late answer."""
    minutes = round(seconds / 60)
    if minutes < 120:
        amount, en, zh = minutes, "minutes", "分钟"
    elif minutes < 2880:
        amount, en, zh = round(minutes / 60), "hours", "小时"
    else:
        amount, en, zh = minutes // 1440, "days", "天"
    return _LATE(language).format(amount=amount, en=en, zh=zh)


_ADVICE = (
    " Please tell the bot's owner.",
    "; if it keeps happening, ask the bot's owner",
    ", or ask the bot's owner",
    "，请告知机器人的所有者",
    "；如仍不行，请联系机器人的所有者",
    "，或联系机器人的所有者",
)
_RECORDING = Bilingual("this voice message", "这条语音消息")
_FILE = Bilingual("this file", "这个文件")
_NOT_TAKEN = Bilingual("(I could not read {what}: {why}.)", "（我无法接收{what}：{why}。）")
_UNTAKEN = {
    "large": Bilingual("it is larger than {size}", "超过 {size}"),
    "fetch": Bilingual("the download failed; please send it again", "下载失败，请重新发送"),
    "many": Bilingual("I read only the first few files of a message", "一条消息我只读取前几个文件"),
    "unheard": Bilingual(
        "I cannot listen to voice messages here; please write instead", "我在这里听不了语音，请改用文字发送"
    ),
    "untranscribed": Bilingual("I could not turn it into text; please try again", "没能转成文字，请再试一次"),
}
_NOT_ATTACHED = Bilingual("(I could not attach the file `{name}`.)", "（我没能附上文件 `{name}`。）")
_NOT_ATTACHED_FROM_WEB = Bilingual("(I could not attach this: {why}.)", "（我没能附上这个文件：{why}。）")
_NOT_FETCHED = {
    "FETCH_BLOCKED": Bilingual("I may not open that address", "我不能访问该地址"),
    "FETCH_EMPTY": Bilingual("the file is empty", "文件是空的"),
    "FETCH_FAILED": Bilingual("the download failed", "下载失败"),
    "FETCH_NOT_A_FILE": Bilingual("it is a web page, not a file", "这是网页，不是文件"),
    "FETCH_STATUS": Bilingual("its server refused the download", "对方服务器拒绝了"),
    "FETCH_TIMEOUT": Bilingual("its server is too slow", "对方服务器响应太慢"),
    "FETCH_TOO_LARGE": Bilingual("it is larger than {size}", "超过 {size}"),
    "MANY": Bilingual("an answer can carry at most ten files", "一次回答最多附十个文件"),
    "NOT_ALLOWED": Bilingual("I may not attach files from the web here", "这里不能附上网上的文件"),
}
_PAUSED = Bilingual("I stopped here; what is done is saved. ", "我先停在这里，已完成的部分已保存。")
_LATE = Bilingual(
    "(Sorry for the delay: this answers your message from {amount} {en} ago.)",
    "（抱歉回复晚了：这是对 {amount} {zh}前那条消息的回答。）",
)
_MISSED = Bilingual("(This was due {due}, while I was not running.)", "（这本应在 {due} 进行，当时我没有运行。）")
_COMPACTED = {
    "summarised": Bilingual(
        "(To make room, I have summarised the older part of our conversation.)",
        "（对话太长，我已把较早的部分整理成摘要。）",
    ),
    "failed": Bilingual(
        "(I tried to summarise the older part of our conversation, but it failed. Once it no longer fits, I "
        "will stop seeing its oldest messages; /new starts over.)",
        "（我尝试把较早的对话整理成摘要，但没有成功。放不下时，我将看不到最早的消息；/new 可重新开始。）",
    ),
}
_DECLINED = Bilingual("The model declined to answer this.", "模型拒绝回答这个问题。")
_RETRYING = Bilingual("The model is busy. Trying again.", "模型现在很繁忙，正在重试。")
_CONNECTING = Bilingual("I lost the connection to the model. Trying again.", "与模型的连接中断，正在重试。")
_RETRYING_IN = Bilingual("The model is busy. Trying again in {seconds} s.", "模型现在很繁忙，{seconds} 秒后重试。")
_CONNECTING_IN = Bilingual(
    "I lost the connection to the model. Trying again in {seconds} s.", "与模型的连接中断，{seconds} 秒后重试。"
)
_EMPTY = Bilingual(
    "The model gave no answer. Please try again; if it keeps happening, ask the bot's owner.",
    "模型没有给出回答，请再试一次；如仍不行，请联系机器人的所有者。",
)
cut_off = Bilingual(
    '(The answer reached its length limit. Say "continue" and I will carry on.)',
    "（回答达到长度上限。回复“继续”，我会接着写。）",
)
"""The line below an answer that reached the model's output limit."""
cut_short = Bilingual("(The answer reached its length limit.)", "（回答达到长度上限。）")
"""The line below a reply that was cut to the maximum number of parts, on a channel without files."""
goes_on = Bilingual("(The whole answer is in the file answer.md.)", "（完整回答见文件 answer.md。）")
"""The line below the first part of a reply that has too many."""
internal_error = Bilingual(
    "Something went wrong on my side. Please try again; the details are in the operator's log.",
    "我这边出了点问题，请再试一次。详情已记入日志，管理员可以查看。",
)
"""An internal error."""
gave_up = Bilingual(
    "I was interrupted several times and could not finish. Please send it again, perhaps in smaller steps.",
    "我多次被中断，没能完成。请重新发送，最好拆成更小的步骤。",
)
"""The message crashed its process too often."""
unknown_agent = Bilingual(
    "The assistant you wrote to is no longer available here. Please send your message again; in the web chat, start a new "
    "conversation first.",
    "原来的智能体在这里已不可用。请重新发送；如果是网页聊天，请先新建对话。",
)
"""The agent was removed from the config, or bound to other chats, while the message waited."""
too_many = Bilingual(
    "Too many messages are waiting already. Please send this one again when I have caught up.",
    "排队的消息太多了。请等我处理完后再发送这条。",
)
"""The queue of the chat or sender is full; this message is not answered."""
_LIMITS: dict[TurnLimit, Bilingual] = {
    "rounds": Bilingual(
        'I stopped because this needs more steps than one answer may take. Say "continue" and I will carry on.',
        "我先停在这里：步骤数已达单次上限。回复“继续”，我会接着做。",
    ),
    "turn-time": Bilingual(
        'I stopped because this takes longer than one answer may take. Say "continue" and I will carry on.',
        "我先停在这里：耗时已达单次上限。回复“继续”，我会接着做。",
    ),
    "repeating": Bilingual(
        "I stopped because the same step kept failing. Tell me how to continue, or ask in a different way.",
        "我先停在这里：同一步骤反复失败。请告诉我如何继续，或换个说法。",
    ),
    "pauses": Bilingual(
        "The model paused too often on this. Please try again with a smaller task.",
        "模型在这个任务上停顿了太多次，请把任务拆小一些再试。",
    ),
    "empty": _EMPTY,
    "cut": Bilingual(
        "The answer was longer than the model allows. Please ask for it in smaller parts.",
        "回答超出了模型的长度上限，请拆成更小的部分来问。",
    ),
}
_NOT_ACCEPTED = Bilingual(
    "The model rejected this request. Please try again later, or ask the bot's owner.",
    "模型没有接受这次请求，请稍后再试，或联系机器人的所有者。",
)
_RUNNER_FAILED = Bilingual(
    "I can't answer right now: the program behind me has failed. Please tell the bot's owner.",
    "我暂时无法回答：背后的程序出了故障，请告知机器人的所有者。",
)
_RUNNER_INTERRUPTED = Bilingual(
    "I was interrupted by a restart while working on this. Nothing is run again: check what is done, and write “continue”.",
    "处理这条消息时遇到重启，已中断。不会重复执行：请先看看做到了哪一步，再发送“继续”。",
)
_RUNNER_WAITS = Bilingual("Waiting for approval: `{title}`", "等待审批：`{title}`")
_ERRORS: dict[ErrorKind, Bilingual] = {
    "auth": Bilingual(
        "I can't answer right now: my access to the model was refused. Please tell the bot's owner.",
        "我暂时无法回答：模型拒绝了访问，请告知机器人的所有者。",
    ),
    "billing": Bilingual(
        "I can't answer right now: the model's account has no credit left. Please tell the bot's owner.",
        "我暂时无法回答：模型账户余额不足，请告知机器人的所有者。",
    ),
    "invalid": _NOT_ACCEPTED,
    "stale_thinking": _NOT_ACCEPTED,
    "no_tools": _NOT_ACCEPTED,
    "not_found": Bilingual(
        "The model chosen for me does not exist. Please tell the bot's owner.",
        "为我配置的模型不存在，请告知机器人的所有者。",
    ),
    "too_large": Bilingual(
        "This conversation is too long for the model. Please send a shorter message or start a new chat.",
        "这段对话超出了模型的长度限制，请缩短消息或开始新的对话。",
    ),
    "message_too_long": Bilingual(
        "Your message is too long for the model. Please shorten it, or send it in several parts.",
        "这条消息太长，模型读不完。请缩短，或分成几条发送。",
    ),
    "rate_limited": Bilingual(
        "The model is getting too many requests. Please try again in a few minutes.",
        "模型的请求太多了，请过几分钟再试。",
    ),
    "overloaded": Bilingual(
        "The model is overloaded right now. Please try again in a few minutes.", "模型现在很繁忙，请过几分钟再试。"
    ),
    "server": Bilingual(
        "The model's service has a problem. Please try again in a few minutes.", "模型服务出现故障，请过几分钟再试。"
    ),
    "network": Bilingual(
        "I could not connect to the model. Please try again in a moment.", "我连接不上模型，请稍后再试。"
    ),
    "timeout": Bilingual(
        "The model took too long to answer. Please try again, perhaps with a smaller task.",
        "模型回答超时，请再试一次，或把任务拆小一些。",
    ),
    "incomplete": Bilingual(
        "The model's answer broke off on the way. Please try again.", "模型的回答中途中断了，请再试一次。"
    ),
    "unconfigured": Bilingual(
        "No model is set up for me yet. Please tell the bot's owner.",
        "我还没有配置可用的模型，请告知机器人的所有者。",
    ),
}


def over_budget(spent: OverBudget, language: Language) -> str:
    """Return the sentence for a spent budget, alone or after another sentence."""
    sentence = _OVER_BUDGET[spent.period](language).format(whose=_WHOSE[spent.whose](language), until=spent.until)
    return sentence[:1].upper() + sentence[1:]


def budget_warning(whose: Payer, period: Period, share: float, until: str, language: Language) -> str:
    percent = min(100, int(share * 100))
    return _BUDGET_WARNING[period](language).format(whose=_WHOSE[whose](language), percent=percent, until=until)


def too_fast(whose: Literal["sender", "chat"], seconds: float, language: Language) -> str:
    """Return the answer to the first message over a rate limit; `seconds` until the limit resets."""
    amount, en, zh = math.ceil(max(1.0, seconds)), "s", "秒"
    for size, *units in ((60, "min", "分钟"), (60, "h", "小时")):
        if amount >= 2 * size:
            amount, (en, zh) = math.ceil(amount / size), units
    return (_TOO_FAST if whose == "sender" else _TOO_BUSY)(language).format(amount=amount, en=en, zh=zh)


_WHOSE: dict[Payer, Bilingual] = {
    "agent": Bilingual("this agent's", "这个智能体"),
    "chat": Bilingual("this chat's", "这个聊天"),
    "sender": Bilingual("your", "你"),
}
_OVER_BUDGET: dict[Period, Bilingual] = {
    "day": Bilingual(
        "{whose} budget for today is used up. It resets at {until}; please write to me then.",
        "{whose}今天的额度已经用完，{until} 重置，届时再聊。",
    ),
    "month": Bilingual(
        "{whose} budget for this month is used up. It resets on {until}; please write to me then.",
        "{whose}本月的额度已经用完，{until} 重置，届时再聊。",
    ),
}
_BUDGET_WARNING: dict[Period, Bilingual] = {
    "day": Bilingual(
        "({percent} % of {whose} budget for today is used. It resets at {until}.)",
        "（{whose}今天的额度已用 {percent}%，{until} 重置。）",
    ),
    "month": Bilingual(
        "({percent} % of {whose} budget for this month is used. It resets on {until}.)",
        "（{whose}本月的额度已用 {percent}%，{until} 重置。）",
    ),
}
_TOO_FAST = Bilingual(
    "That was a lot at once. Please wait {amount} {en}; I will not see messages sent before then.",
    "你发得太快了，请等 {amount} {zh}再发；在此之前的消息我不会看到。",
)
_TOO_BUSY = Bilingual(
    "This chat is too busy for me. Please wait {amount} {en}; I will not see messages sent before then.",
    "这个聊天的消息太多了，请等 {amount} {zh}再发；在此之前的消息我不会看到。",
)


_LOG_IN = Bilingual(
    "🔑 The login is in our direct chat. If you do not see it, write /login to me there.",
    "🔑 登录卡片已发到你和我的私聊。如果没有收到，请在私聊中发送 /login。",
)
