"""What a person is told when the model gave no proper answer: one calm sentence, in their language.

Never a provider's own words, which may name accounts or repeat what was said. The operator finds the rest in the log.
"""

import re
from typing import assert_never

from agents.messages import ErrorKind, ModelError, StopReason

_CJK = re.compile(r"[⺀-鿿豈-﫿\U00020000-\U0003ffff]")


def sentence(problem: ModelError | StopReason, answered: str = "") -> str:
    """One sentence about `problem`, in Chinese where `answered`, the person's message, is; else in English."""
    english, chinese = _of_error(problem.kind) if isinstance(problem, ModelError) else _of_stop(problem)
    return chinese if _CJK.search(answered) else english


def _of_error(kind: ErrorKind) -> tuple[str, str]:
    match kind:
        case "auth":
            return (
                "I can't reach my model: its access was refused. Please tell whoever runs this bot.",
                "我暂时无法使用模型:访问被拒绝,请告知机器人管理员。",
            )
        case "billing":
            return (
                "I can't reach my model: its account needs attention. Please tell whoever runs this bot.",
                "我暂时无法使用模型:模型账户需要处理,请告知机器人管理员。",
            )
        case "invalid" | "stale_thinking" | "no_tools":
            return (
                "The model did not accept this request. Please try to say it differently.",
                "模型没有接受这次请求,请换一种说法再试。",
            )
        case "not_found":
            return (
                "The model chosen for me does not exist. Please tell whoever runs this bot.",
                "为我配置的模型不存在,请告知机器人管理员。",
            )
        case "too_large":
            return (
                "This conversation is too long for the model. Please send a shorter message or start a new chat.",
                "这段对话超出了模型的长度限制,请缩短消息或开始新的对话。",
            )
        case "rate_limited":
            return (
                "The model is getting too many requests. Please try again in a few minutes.",
                "模型的请求太多了,请过几分钟再试。",
            )
        case "overloaded":
            return (
                "The model is overloaded right now. Please try again in a few minutes.",
                "模型现在很繁忙,请过几分钟再试。",
            )
        case "server":
            return (
                "The model's service has a problem. Please try again in a few minutes.",
                "模型服务出现故障,请过几分钟再试。",
            )
        case "network":
            return (
                "I could not connect to the model. Please try again in a moment.",
                "我连接不上模型,请稍后再试。",
            )
        case "timeout":
            return (
                "The model took too long to answer. Please try again, perhaps with a smaller task.",
                "模型回答超时,请再试一次,或把任务拆小一些。",
            )
        case "incomplete":
            return (
                "The model's answer broke off on the way. Please try again.",
                "模型的回答中途中断了,请再试一次。",
            )
        case "unconfigured":
            return (
                "No model is set up for me yet. Please tell whoever runs this bot.",
                "我还没有配置可用的模型,请告知机器人管理员。",
            )
        case _:
            assert_never(kind)


def _of_stop(reason: StopReason) -> tuple[str, str]:
    match reason:
        case "end_turn" | "tool_use" | "stop_sequence":
            return ("The model had nothing to say. Please try again.", "模型没有给出回答,请再试一次。")
        case "max_tokens":
            return (
                "The answer reached its length limit and was cut. Ask me to go on, or for less at once.",
                "回答达到长度上限被截断了,可以让我继续,或一次少问一些。",
            )
        case "context_window":
            return _of_error("too_large")
        case "refusal" | "content_filter":
            return ("The model declined to answer this.", "模型拒绝回答这个问题。")
        case "pause":
            return (
                "The model needed too many pauses for this. Please try again with a smaller task.",
                "模型处理这个任务停顿太多次,请把任务拆小一些再试。",
            )
        case "error":
            return ("The model gave no answer. Please try again.", "模型没有给出回答,请再试一次。")
        case "aborted":
            return ("The answer was stopped.", "回答已停止。")
        case _:
            assert_never(reason)
