"""Commands through the whole gateway: each on every channel, beside a running turn, again, and by whoever may not."""

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from agents.compaction import Compacted
from agents.messages import AssistantMessage, Thinking, ToolCall
from agents.runner import AgentRunner
from agents.turn import Settings
from channels.message import Attachment, Chat, Sender
from gateway.commands.catalog import COMMANDS, command_of
from gateway.config.commands import ALIASES, CHINESE_NAMES, OWNER_ONLY
from gateway.program import VERSION
from gateway.store.inbound import Inbound
from gateway.turns.answering import above
from tests.channels.contexts import context as made
from tests.emulators.models.script import Fault, Say, Think, Turn, calls, says
from tests.emulators.models.server import Reply
from tests.running import AGENTS, ALICE, ALICE_CHAT, BOB, BOB_CHAT, GROUP, Running, running
from tests.stories.at_work import NEVER, RUNS, prompt, users
from tests.stories.channels.test_telegram import bot
from tests.web_page import WEB, new_id, opened

SECOND = "anthropic/claude-opus-4-6"
ROOT = Path(__file__).resolve().parents[3]
TWO = (
    f"{AGENTS}    - {{ id: second, name: Zweite, model: [anthropic/claude-sonnet-4-6, {SECOND}], greeting: Grüezi! }}\n"
)
UNOFFERED = {"tasks", "schedules", "agent", "login", "logout", "human", "back"}
"""The commands that would do nothing with the one agent, and the config, of most tests here."""
GROUPED: dict[str, Any] = {"chat": GROUP, "chat_type": "group", "mention_bot": True}


async def said(house: Running, text: str, **who: Any) -> str:
    """What the bot answers."""
    before = len(house.feishu.messages)
    await house.say(text, **who)
    answer = (await house.replies(before + 1))[before]
    await house.idle()
    return answer


COMMANDED = [
    ("/new", "new", ""),
    (" /NEW ", "new", ""),
    ("／new", "new", ""),
    ("/new@helper_bot", "new", ""),
    ("/model Anthropic/X", "model", "Anthropic/X"),
    ("/compact the\nlast week", "compact", "the\nlast week"),
    ("/start ref_42", "start", "ref_42"),
    ("/stop please", None, ""),
    ("/model please change it", None, ""),
    ("/newest", None, ""),
    ("/etc/passwd is mine", None, ""),
    ("please /stop", None, ""),
    ("/ stop", None, ""),
    ("/", None, ""),
    ("//stop", None, ""),
    ("/模型 haiku", "model", "haiku"),
    (" ／停止 ", "stop", ""),
    ("/帮助@helper_bot 模型", "help", "模型"),
    ("/压缩 上周的\n事", "compact", "上周的\n事"),
    ("/停止 一下", None, ""),
    ("/帮我写个脚本", None, ""),
    ("/帮助我", None, ""),
    ("请/停止", None, ""),
]


@pytest.mark.parametrize(("text", "name", "arguments"), COMMANDED, ids=repr)
def test_command_must_be_the_whole_message(text: str, name: str | None, arguments: str) -> None:
    assert command_of(made("feishu", Chat(id="c", kind="direct"), text=text)) == (name, arguments)


def test_command_typo_beside_a_file_is_words_to_the_agent() -> None:
    typo = made("feishu", Chat(id="c", kind="direct"), text="/statuz")
    assert command_of(typo) == ("misspelt", "statuz")
    file = Attachment(kind="file", key="k", name="report.pdf")
    assert command_of(replace(typo, attachments=(file,))) == (None, "")


def test_command_for_another_bot_in_a_group_is_ignored() -> None:
    group = Chat(id="g", kind="group")
    assert command_of(made("telegram", group, text="/stop@another_bot", mentioned=False)) == (None, "")
    assert command_of(made("telegram", group, text="/stop@this_bot", mentioned=True)) == ("stop", "")


ANSWERED = {
    "help": r"Just write to me\.",
    "commands": r"- `/model ",
    "start": r"Hello! I am helper",
    "new": r"New conversation started\.",
    "reset": r"New conversation started\.",
    "stop": r"Nothing is running\.",
    "tasks": "This conversation has no tasks",
    "status": rf"- Agent: `helper`\n- Model: `anthropic/claude-sonnet-4-6`[\s\S]*- Clawgate: {VERSION}",
    "context": r"- Tooling: \d+[\s\S]*- History \(\d+ turns\): \d+\n- Total: [\d,]+ / [\d,]+ \(\d+%\)",
    "models": r"- 1 · `anthropic/claude-sonnet-4-6` \(in use\)",
    "model": r"- 1 · `anthropic/claude-sonnet-4-6` \(in use\)",
    "think": r"The levels of `anthropic/claude-sonnet-4-6`: `",
    "reasoning": r"not show the model's reasoning",
    "verbose": r"not show tool calls",
    "compact": r"nothing to summarise",
    "usage": r"- This conversation: [\d,]+ tokens in, [\d,]+ out",
    "login": r"Log in, so that|Write /login to me in a direct chat",
    "logout": r"You are not logged in|There is no login here",
    "whoami": r"`(?:feishu|telegram|web):\S+`",
    "why": r"Only an owner of this bot may use /why|- Turn \d+: |I have not answered anything here yet",
    "agent": r"- `helper` \(answers here\)",
    "skill": r"Skills:\n- `",
    "queue": r"The queue mode is `collect`",
    "edit": r"Put the new text after /edit",
    "retry": r"again\.$",
    "schedules": r"You have no reminders here",
    "reminders": r"You have no reminders here",
    "remember": r"You have no notes yet|Others can read this chat",
    "undo": r"There is nothing to undo|Undone: “",
    "export": r"",
    "pair": r"Only an owner of this bot may use /pair|/pair CODE",
    "claim": r"Send it with the code that the gateway printed at startup|Send it to me in a direct chat|Send me `/claim ",
    "listen": r"Only an owner of this bot may use /listen|Send it in the group\.",
    "unlisten": r"Only an owner of this bot may use /unlisten|Send it in the group\.",
    "approve": r"No decision was made\.",
    "approvals": r"You have no pending requests",
    "good": r"Thank you, noted|have not answered",
    "bad": r"Thank you, noted|have not answered",
    "human": r"No colleague is on call here\.",
    "back": r"No colleague has this chat\.",
    "forget": r"This erases everything|Send it to me in a direct chat",
    "mydata": r"Everything that I hold about you|mydata|Send it to me in a direct chat",
}


def test_command_pages_list_every_command() -> None:
    english = ["| command | what it does | 中文 | who may, unless the config says otherwise |", "|---|---|---|---|"]
    chinese = ["| 命令 | 中文名 | 作用 | 谁可以用（除非配置另有规定） |", "|---|---|---|---|"]
    names = {name: it for it, name in CHINESE_NAMES.items()}
    for it in COMMANDS.values():
        usage = f"/{it.form}".replace("|", "\\|")
        who, zh = ("owners", "所有者") if it.owner_only else ("everyone", "所有人")
        if it.owner_in_groups:
            who, zh = "everyone; in groups the owners", "所有人；群里仅所有者"
        english.append(f"| `{usage}` | {it.en} | {it.zh} | {who} |")
        chinese.append(f"| `{usage}` | `/{names[it.name]}` | {it.zh} | {zh} |")
    assert "\n".join(english) in (ROOT / "docs" / "commands.md").read_text(encoding="utf-8")
    assert "\n".join(chinese) in (ROOT / "docs" / "commands.zh-CN.md").read_text(encoding="utf-8")


def test_command_chinese_names_are_listed_on_their_page_only() -> None:
    assert sorted(CHINESE_NAMES.values()) == sorted(COMMANDS)
    page = (ROOT / "docs" / "commands.md").read_text(encoding="utf-8")
    for chinese, name in CHINESE_NAMES.items():
        assert command_of(made("feishu", Chat(id="c", kind="direct"), text=f"/{chinese}")) == (name, "")
        assert f"`/{chinese}` {name}" in page


async def test_command_by_its_chinese_name_answers_in_chinese(tmp_path: Path) -> None:
    async with running(tmp_path, script=[says("one"), says("once more")], agents=TWO) as house:
        await said(house, "hello there, my friend")
        english = await said(house, "/help")
        chinese = await said(house, "/帮助")
        assert english.count("\n") == chinese.count("\n")
        assert "/帮助" not in english + chinese
        assert "- `/new` 开始新的对话" in await said(house, "/help 全部")
        assert await said(house, "/帮助 模型") == await said(house, "/帮助 model")
        assert await said(house, "/模型 opus") == f"从下一条消息起由 `{SECOND}` 回答，直到 /new。"
        assert await said(house, "/重试") == "once more"
        assert (await said(house, "/新对话")).startswith("已开始新的对话")


async def test_command_policy_holds_for_its_chinese_name(tmp_path: Path) -> None:
    switched_off = ", ".join(f"{name}: off" for name in COMMANDS)
    async with running(tmp_path, more=f"commands: {{ {switched_off} }}") as house:
        for chinese, name in CHINESE_NAMES.items():
            assert await said(house, f"/{chinese}") == f"/{name} 已停用。"


def test_command_matrix_covers_every_command() -> None:
    assert sorted(ANSWERED) == sorted(COMMANDS)


async def test_commands_answer_in_feishu_during_a_turn_and_redelivered_once(tmp_path: Path) -> None:
    async with running(tmp_path, script=[says("hello Alice"), NEVER]) as house:
        await said(house, "hello")
        await house.say("go on")
        await house.requested(2)
        for number, (name, pattern) in enumerate(ANSWERED.items(), start=1):
            if name in ("stop", "new", "reset", "retry", "undo"):
                pattern = "Stopped|conversation started|still answering|Nothing is running|There is no"
            event = house.feishu.text_event(f"/{name}", sender=ALICE, chat=ALICE_CHAT)
            await house.push(event)
            answers = await house.replies(number + 1)
            await house.push(event)
            assert re.search(pattern, answers[number]), (name, answers[number])
        await house.idle()
        await house.replies(len(ANSWERED) + 2)
        assert len(house.feishu.messages) == len(ANSWERED) + 2  # the copy of `/mydata` is a file
        assert len(house.anthropic.requests) == 2


async def test_commands_answer_in_the_web_chat(tmp_path: Path) -> None:
    async with running(tmp_path, script=[says("hello")] * 3, feishu=WEB) as house, opened(house.url) as page:
        for number, (name, pattern) in enumerate(ANSWERED.items(), start=1):
            await page.say(f"/{name}", chat=f"c_commanded_{name}")
            answer = (await page.answers(number))[-1]
            assert re.search(pattern, answer), (name, answer)
        listed = (await page.http.get("/api/chats")).json()["commands"]
        assert [it["name"] for it in listed] == [
            name for name in COMMANDS if name not in ALIASES | UNOFFERED | {"pair", "listen", "unlisten"}
        ]


async def test_commands_on_telegram_by_menu_bot_name_and_mention(
    tmp_path: Path,
) -> None:
    async with bot(tmp_path, "polling", script=[says("hello")]) as it:
        await it.house.until(lambda: len(it.telegram.commands) == 4)
        listed = [name for name in COMMANDS if name not in ALIASES | OWNER_ONLY | UNOFFERED]
        for (scope, language), entries in it.telegram.commands.items():
            left = {"default": listed, "all_group_chats": [name for name in listed if COMMANDS[name].only is None]}
            assert [entry["command"] for entry in entries] == left[scope]
            assert all(entry["description"].isascii() == (language == "") for entry in entries)
        alice = it.telegram.user(500000011, "Alice")
        team, name = it.telegram.supergroup(), it.telegram.bot["username"]
        chinese = it.telegram.text_update("/whoami", chat=it.telegram.private())
        chinese["message"]["from"]["language_code"] = "zh-hans"
        for update in (
            it.telegram.text_update("/new", chat=team, sender=alice),
            it.telegram.text_update(f"/NEW@{name}", chat=team, sender=alice),
            it.telegram.text_update(f"@{name} /new", chat=team, sender=alice),
            it.telegram.text_update("/new@another_bot", chat=team, sender=alice),
            it.telegram.text_update(f"/model@{name} default", chat=team, sender=alice),
            chinese,
        ):
            await it.happens(update)
        await it.replies(5)
        await it.house.idle()
        texts = [sent.text for sent in it.telegram.messages]
        assert texts.count("New conversation started.") == 3
        assert [text for text in texts if "Only an owner" in text]
        assert len(texts) == 5
        assert it.house.anthropic.requests == []


async def test_new_command_forgets_the_history_and_says_what_it_dropped(tmp_path: Path) -> None:
    async with running(tmp_path, script=[says("noted"), NEVER, says("fresh")]) as house:
        await said(house, "the word is swordfish")
        await house.say("think long")
        await house.requested(2)
        await house.say("and this one `waits`")
        answer = await said(house, "/new")
        ended = "New conversation started. I stopped answering: “think long”."
        assert answer == f"{ended}\n\n1 waiting message was dropped:\n- “and this one 'waits'”"
        assert await said(house, "hello again") == "fresh"
        assert "swordfish" not in json.dumps(house.anthropic.requests[-1].body["messages"])
        assert await said(house, "/export") != ""


@pytest.mark.parametrize("command", ["/new", "/stop"])
async def test_stop_just_after_the_answer_does_not_claim_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    async with running(tmp_path, script=[says("the answer")]) as house:
        house.line.hold(after_pieces=0)
        await house.say("think long")
        await house.requested(1)
        control = house.gateway.runtime.control
        stop = control.stop

        async def late(sid: str, before: int) -> int:
            house.line.release()
            await house.replies(1)
            return await stop(sid, before)

        monkeypatch.setattr(control, "stop", late)
        await house.say(command)
        answer, said_then = await house.replies(2)
        assert answer == "the answer"
        assert "think long" not in said_then
        assert "Stopped" not in said_then


async def test_retry_command_answers_the_failed_and_collected_messages(tmp_path: Path) -> None:
    refused = Fault(status=400, message="messages: something about this request")
    script: list[Reply] = [refused, says("now it works"), says("slow"), says("both"), says("both again")]
    script += [says("both, in other words"), says("next")]
    async with running(tmp_path, script=script) as house:
        assert "rejected" in await said(house, "one")
        assert await said(house, "/retry") == "now it works"
        house.line.hold()
        await house.say("two")
        await house.requested(3)
        await house.say("three")
        await house.say("four")
        house.line.release()
        assert (await house.replies(4))[2:] == ["slow", "both"]
        await house.idle()
        assert await said(house, "/retry") == "both again"
        assert await said(house, "/edit") == "Put the new text after /edit."
        assert await said(house, "/edit 4, or more") == "both, in other words"
        assert await said(house, "five") == "next"
        asked = " ".join(users(house.anthropic.requests[-1].body))
        assert [asked.count(f"Alice: {word}") for word in ("one", "two", "three", "4, or more", "five")] == [1] * 5
        assert "four" not in asked


async def test_retry_answers_the_last_message_again_and_undo_forgets_it(tmp_path: Path) -> None:
    script = [says("one"), says("two"), says("two, better"), says("three")]
    async with running(tmp_path, script=script) as house:
        await said(house, "first")
        await said(house, "second")
        assert await said(house, "/retry") == "two, better"
        assert [words.rpartition(": ")[2] for words in users(house.anthropic.requests[-1].body)] == ["first", "second"]
        assert house.feishu.messages[-1].reply_to == house.feishu.messages[-2].reply_to
        assert await said(house, "/undo") == "Undone: “second”."
        assert await said(house, "third") == "three"
        assert [words.rpartition(": ")[2] for words in users(house.anthropic.requests[-1].body)] == ["first", "third"]
        assert [await said(house, "/undo") for _ in range(3)] == [
            "Undone: “third”.",
            "Undone: “first”.",
            "There is nothing to undo.",
        ]


TWICE = [("/retry", "/retry"), ("/edit two", "/edit two"), ("/retry", "/undo")]


@pytest.mark.parametrize("slots", [1, 3])
async def test_retry_twice_at_once_concerns_the_same_last_message(tmp_path: Path, slots: int) -> None:
    """Both are accepted before the first one runs, as after a double tap. With one slot, what the first one had answered
    again is finished before the second one runs; with several it waits."""
    more = f"limits: {{ parallelTurns: {slots} }}"
    async with running(tmp_path, script=lambda _: says("done"), more=more) as house:
        for case, commands in enumerate(TWICE):
            here = f"oc_a{case:029}"
            for text in ("one", "two"):
                await said(house, text, chat=here)
            house.line.hold()
            before = len(house.anthropic.requests) + slots
            for number in range(slots):
                await house.say("hello", sender=BOB, chat=f"oc_{number:030}")
            await house.requested(before)
            for text in commands:
                await house.say(text, chat=here)
            house.line.release()
            await house.idle()
            again = [users(it.body)[-1] for it in house.anthropic.requests[before:]]
            assert [words.rpartition(": ")[2] for words in again] in (["two"], ["two", "two"]), commands
            await said(house, "three", chat=here)
            history = [words.rpartition(": ")[2] for words in users(house.anthropic.requests[-1].body)]
            assert history in (["one", "two", "three"], ["one", "three"]), commands
            assert (history == ["one", "three"]) <= ("/undo" in commands), commands


async def test_model_and_thinking_level_last_until_a_new_conversation(tmp_path: Path) -> None:
    async with running(tmp_path, script=[says("a"), says("b"), says("c")], agents=TWO) as house:
        assert SECOND in await said(house, "/model opus-4-6")
        assert "`high`" in await said(house, "/think high")
        await said(house, "hello")
        request = house.anthropic.requests[-1].body
        assert request["model"] == "claude-opus-4-6"
        assert "thinking=high" in prompt(house)
        assert f"`{SECOND}`" in await said(house, "/status")
        assert "no model “gpt”" in await said(house, "/model gpt")
        assert "There is no level “hardest”. `" in await said(house, "/think hardest")
        await said(house, "/model default")
        await said(house, "hello")
        assert house.anthropic.requests[-1].body["model"] == "claude-sonnet-4-6"
        await said(house, "/new")
        await said(house, "hello")
        assert "thinking=off" in prompt(house)


MANY = """
agents:
  list:
    - id: helper
      model:
        - anthropic/claude-sonnet-4-6
        - anthropic/claude-haiku-4-5
        - anthropic/claude-sonnet-4-5
        - anthropic/gpt-5
        - anthropic/gpt-5-mini
        - anthropic/minimax-m2
"""
HAIKU, GPT, MINI, MINIMAX = (f"anthropic/{it}" for it in ("claude-haiku-4-5", "gpt-5", "gpt-5-mini", "minimax-m2"))
CHOSEN: list[tuple[str, str]] = [
    (HAIKU, HAIKU),
    ("claude-haiku-4-5", HAIKU),
    ("haiku", HAIKU),
    ("HAIKU", HAIKU),
    ("claude-haiku", HAIKU),
    ("haiku-4", HAIKU),
    ("2", HAIKU),
    ("4", GPT),
    ("6", MINIMAX),
    ("gpt-5", GPT),
    ("gpt-5-mini", MINI),
    ("minimax", MINIMAX),
]
AMBIGUOUS: list[tuple[str, list[int]]] = [
    ("sonnet", [1, 3]),
    ("4-5", [2, 3]),
    ("claude", [1, 2, 3]),
    ("mini", [5, 6]),
    ("anthropic/", [1, 2, 3, 4, 5, 6]),
]


async def test_model_command_takes_a_unique_part_of_a_name_or_a_number(tmp_path: Path) -> None:
    async with running(tmp_path, agents=MANY) as house:
        listed = await said(house, "/model")
        assert listed == await said(house, "/models")
        assert re.findall(r"^- ([0-9]+) · `([^`]+)`", listed, re.MULTILINE)[1] == ("2", HAIKU)
        for wanted, found in CHOSEN:
            assert (await said(house, f"/model {wanted}")).startswith(f"`{found}` answers"), wanted
        assert f"- 6 · `{MINIMAX}` (in use)" in await said(house, "/model")
        for wanted, numbers in AMBIGUOUS:
            answer = await said(house, f"/model {wanted}")
            assert answer.startswith(f"Several models match “{wanted}”:"), wanted
            assert [int(it) for it in re.findall(r"^- ([0-9]+) · ", answer, re.MULTILINE)] == numbers, wanted
        for wanted in ("gpt-9", "0", "7", "-1", "２"):
            assert f"no model “{wanted}”" in await said(house, f"/model {wanted}"), wanted
        assert f"- 6 · `{MINIMAX}` (in use)" in await said(house, "/model")


async def test_verbose_shows_tool_calls_above_the_answer(tmp_path: Path) -> None:
    run = calls(("exec", {"command": "echo sk-abcdefghijklmnop1234567890"}))
    async with running(tmp_path, script=[run, says("done"), says("plain")], more=RUNS) as house:
        await said(house, "/verbose on")
        answer = await said(house, "run it")
        assert answer.endswith("done")
        assert "exec" in answer
        assert "abcdefghijklmnop" not in answer
        await said(house, "/verbose off")
        assert await said(house, "again") == "plain"
        assert "- `exec`" not in json.dumps(house.anthropic.requests[-1].body["messages"])


async def test_reasoning_is_quoted_above_the_answer_while_switched_on(tmp_path: Path) -> None:
    thought = Turn(parts=(Think(text="It is\na greeting."), Say(text="hello")))
    thinking = AGENTS.replace("model: anthropic", "thinking: low\n      model: anthropic")
    async with running(tmp_path, script=lambda _: thought, agents=thinking) as house:
        assert await said(house, "one") == "hello"
        assert "show the model's reasoning above" in await said(house, "/reasoning on")
        assert await said(house, "two") == "> It is\n> a greeting.\n\nhello"
        assert "show the model's reasoning above" in await said(house, "/reasoning perhaps")
        assert "not show the model's" in await said(house, "/reasoning off")
        assert await said(house, "three") == "hello"
        assert "> It is" not in json.dumps(house.anthropic.requests[-1].body["messages"])


async def test_agent_command_switches_the_agent_across_a_restart(tmp_path: Path) -> None:
    async with running(tmp_path, script=[says("b")], agents=TWO) as house:
        assert "no agent “third”" in await said(house, "/agent third")
        assert await said(house, "/agent second") == "Zweite answers here from now on."
        assert await said(house, "/start") == "Grüezi!"
        assert "Only an owner" in await said(house, "/agent second", **GROUPED)
    async with running(tmp_path, script=[says("c")], agents=TWO, emulator=house.feishu) as house:
        await said(house, "hello")
        assert "You are Zweite" in prompt(house)
    async with running(tmp_path, agents=AGENTS, emulator=house.feishu, script=[says("d")]) as house:
        await said(house, "hello")
        assert "You are helper" in prompt(house)


async def test_agent_command_refuses_an_agent_bound_to_others(tmp_path: Path) -> None:
    more = "bindings: [ { agent: second, match: { channel: feishu, sender: ou_somebody } } ]"
    async with running(tmp_path, agents=TWO, more=more) as house:
        assert "second" not in await said(house, "/agent")
        assert "no agent “second”" in await said(house, "/agent second")
    async with running(
        tmp_path, agents=TWO, more=f"{more}\nowners: [ 'feishu:{ALICE}' ]", emulator=house.feishu
    ) as house:
        assert await said(house, "/agent second") == "Zweite answers here from now on."


async def test_command_allowlist_of_the_config_and_the_language_of_its_reply(tmp_path: Path) -> None:
    more = f"owners: [ 'feishu:{ALICE}' ]\ncommands: {{ undo: off, usage: owner, model: everyone }}\nlanguage: zh"
    async with running(tmp_path, script=[says("hi")], more=more) as house:
        assert await said(house, "/undo") == "/undo 已停用。"
        assert "所有者" in await said(house, "/whoami")
        await said(house, "good morning to all of you")
        assert (await said(house, "/usage")).startswith("- This conversation")
        assert await said(house, "/compact 关注部署") == "目前没有需要整理的内容。"
        other = {"sender": BOB, "chat": BOB_CHAT}
        assert "只有机器人的所有者" in await said(house, "/usage", **other)
        assert "in use" in await said(house, "/model", **GROUPED) or "使用中" in house.feishu.messages[-1].text
        assert "/undo" not in await said(house, "/help")


async def test_help_command_is_short_and_lists_all_on_request(tmp_path: Path) -> None:
    async with running(tmp_path, script=[]) as house:
        short, whole, one = [await said(house, text) for text in ("/help", "/help all", "/help new")]
        assert len(short.splitlines()) <= 10
        *_, empty, explained = short.splitlines()
        assert (empty, explained) == ("", "`/help all` explains every command, `/help model` just one.")
        listed = set(re.findall(r"`/([a-z]+)`", short))
        assert listed == COMMANDS.keys() - ALIASES - OWNER_ONLY - UNOFFERED - {"help"}
        assert len(whole.splitlines()) == len(listed) + 1
        assert one == "- `/new` Start a new conversation"


MISSPELT = [
    ("/modle", "There is no /modle. Did you mean `/model`?"),
    ("/modle haiku", "There is no /modle. Did you mean `/model`?"),
    ("/staus", "There is no /staus. Did you mean `/status`?"),
    ("/HLEP", "There is no /HLEP. Did you mean `/help`?"),
    ("/tmp/notes.txt is mine", None),
    ("/something", None),
    ("/写", None),
]


async def test_command_typo_gets_a_suggestion_and_no_model_call(tmp_path: Path) -> None:
    async with running(tmp_path, script=lambda _: says("for the agent")) as house:
        for text, suggestion in MISSPELT:
            asked = len(house.anthropic.requests)
            assert await said(house, text) == (suggestion or "for the agent")
            assert len(house.anthropic.requests) == asked + (suggestion is None), text


async def test_command_suggestion_never_names_a_forbidden_command(tmp_path: Path) -> None:
    more = f"owners: [ 'feishu:{BOB}' ]\ncommands: {{ undo: off }}"
    async with running(tmp_path, script=[], more=more) as house:
        assert "/undo" not in (await said(house, "/unod")).partition("Did you mean")[2]
        assert "/pair" not in (await said(house, "/pairs")).partition("Did you mean")[2]


async def test_skill_and_queue_commands(tmp_path: Path) -> None:
    async with running(tmp_path, script=[says("made"), NEVER, says("newer")]) as house:
        skill = re.findall(r"- `([\w-]+)`", await said(house, "/skill"))[0]
        assert await said(house, f"/skill {skill} a list of files") == "made"
        words = users(house.anthropic.requests[-1].body)[-1]
        assert words.endswith("a list of files")
        assert f"`{skill}`" in words
        assert "`interrupt`" in await said(house, "/queue interrupt")
        await house.say("think long")
        await house.requested(2)
        assert await said(house, "no, this") == "newer"
        assert "mode is `interrupt`" in await said(house, "/queue")
        await said(house, "/new")
        assert "mode is `collect`" in await said(house, "/queue")


async def test_queue_marks_a_dropped_message_where_it_was_written(tmp_path: Path) -> None:
    async with running(tmp_path, script=[NEVER], feishu=WEB) as house, opened(house.url) as page:
        dropped = new_id()
        await page.say("think long")
        await house.requested(1)
        await page.say("and this", message=dropped)
        await page.say("/stop")
        await page.until(lambda: len(page.written()) >= 2)
        await house.idle()
        marked = [it for it in (await page.conversation())["messages"] if it["dropped"]]
        assert [(it["reply_to"], it["text"]) for it in marked] == [(dropped, "")]
        (told,) = [it["text"] for it in page.written() if not it["dropped"]]
        assert "“and this”" in told


async def test_export_command_sends_a_file_where_the_channel_can(tmp_path: Path) -> None:
    async with running(tmp_path, script=[says("the answer")], feishu=WEB) as house, opened(house.url) as page:
        await page.say("the question")
        await page.answers(1)
        await page.say("/export")
        await page.answers(2)
        (file,) = page.written()[-1]["files"]
        text = (await page.http.get(f"/api/files/{file['id']}")).text
        assert "the question" in text
        assert "the answer" in text
        assert file["name"] == "conversation.md"


@pytest.fixture
def database(database_url: str) -> str:
    return f'database: {{ url: "{database_url}" }}'


async def test_command_replayed_after_a_crash_is_idempotent(tmp_path: Path, database: str) -> None:
    """The effect is there and the reply is not: the next process runs the same command under the same number."""
    script = [says("one"), says("two"), says("three"), says("three again"), NEVER]
    async with running(tmp_path, script=script, more=database) as house:
        for text in ("first", "second", "third"):
            await said(house, text)
        runtime = house.gateway.runtime
        sid = next(iter({event.turn.session for event in house.events if hasattr(event, "turn")}))
        message = made("feishu", Chat(id=ALICE_CHAT, kind="direct"), sender=Sender(id=ALICE), message_id="om_command")

        async def twice(name: str, turn: int) -> list[str | None]:
            inbound, texts = Inbound(agent="helper", context=message, command=name), []
            for _ in range(2):
                texts.append((await house.gateway.commands.run(sid, turn, inbound)).reply.text)
                await house.idle()
            return texts

        assert await twice("undo", 1_000) == ["Undone: “third”."] * 2
        assert await twice("retry", 1_001) == [None, None]
        await house.replies(4)
        await house.idle()
        assert len(house.anthropic.requests) == 4
        assert [words.rpartition(": ")[2] for words in users(house.anthropic.requests[-1].body)] == ["first", "second"]
        await house.say("think")
        await house.requested(5)
        await house.say("waits")
        inbound = Inbound(agent="helper", context=message, command="new")
        first = await house.gateway.commands.run(sid, 2_000, inbound)
        await house.idle()
        again = await house.gateway.commands.run(sid, 2_000, inbound)
        assert first.reply.text == again.reply.text
        assert "“waits”" in (first.reply.text or "")
        assert (await runtime.store.conversation(sid, before=3_000, history_turns=9, waiting_max=9)).history == []


def test_reasoning_and_calls_are_shown_above_the_answer() -> None:
    call = ToolCall(id="1", name="read", arguments={"file_path": "a`b.txt", "limit": 3}, arguments_raw="{}")
    content = (Thinking(text="First,\nlook.\n"), call, Thinking(text=""))
    answer = AssistantMessage(content=content, provider="p", model="m", api="a", stop_reason="tool_use")
    assert list(above(Settings(reasoning=True, verbose=True), [answer])) == ["> First,\n> look.", "- `read` `a'b.txt`"]
    assert list(above(Settings(), [answer])) == []


async def test_summary_replaces_exactly_the_turns_it_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The runner's part is stood in for; the mark goes to the number of the last turn that it summarised."""

    async def compact(
        self: AgentRunner, history: list[object], *, session: str, summary: str, focus: str, save: object
    ) -> Compacted:
        return Compacted(content=f"{summary}{focus} of {len(history)}", turns=2)

    monkeypatch.setattr(AgentRunner, "compact", compact, raising=False)
    async with running(tmp_path, script=[says("one"), says("two"), says("three")]) as house:
        for text in ("first", "second", "third"):
            await said(house, text)
        assert "summarised: 2 turns" in await said(house, "/compact the names")
        store = house.gateway.runtime.store
        sid = next(iter({event.turn.session for event in house.events if hasattr(event, "turn")}))
        work = await store.conversation(sid, before=1_000, history_turns=9, waiting_max=9)
        assert work.summary.text == "the names of 3"
        assert len({entry.turn for entry in work.history}) == 1
