"""`chat`: a conversation in the terminal, or one message whose answer is all of standard output."""

import signal
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any
from uuid import uuid4

import typer

from gateway.cli.options import CONFIG, ConfigOption, environment, load, terminal_language
from gateway.observe.terminal import print_text, printable
from gateway.program import OperatorError

if TYPE_CHECKING:
    from gateway.cli.terminal import Conversation

PROMPT = "> "
POLL_SECONDS, NOTICE_SECONDS = 1.0, 0.2
"""Poll intervals: for the database while the stream is silent, and for Ctrl-C."""
DELIVERY_LOOKS = 10
"""Polls that find an answer in the database before it is printed from there instead of the stream."""
INTERRUPTED = 130
FAILURES = {"failed", "declined", "over-budget", "too-many", "too-fast", "stopped", "stale", "recalled", "erased"}
HELP = (
    "A line is a message; @PATH at its beginning sends a file along. "
    "/help shows commands, Ctrl-C stops an answer, Ctrl-D leaves."
)


def chat(
    message: Annotated[
        str | None, typer.Argument(help="One message: its answer is printed, and nothing else. Or from a pipe.")
    ] = None,
    agent: Annotated[str | None, typer.Option("--agent", "-a", help="The agent; by default as bindings say.")] = None,
    file: Annotated[list[Path] | None, typer.Option("--file", "-f", help="Send a file along; may be repeated.")] = None,
    url: Annotated[
        str | None, typer.Option(help="The address of the gateway, if the config has another.", metavar="URL")
    ] = None,
    config: ConfigOption = CONFIG,
) -> None:
    """Talk to an agent in the terminal, with or without a running gateway. With a MESSAGE, or one from a pipe, it
    prints the answer and exits: 1 if there is none, with the reason on standard error."""
    from gateway.cli.terminal import Conversation, door
    from gateway.config.problems import quoted, suggestion
    from gateway.observe import logs
    from gateway.observe.secrets import Scrubber, secrets_of

    loaded = load(config)
    if agent is not None and agent not in (agents := [it.id for it in loaded.config.agents.list]):
        raise OperatorError(f"--agent: no agent {quoted(agent)}{suggestion(agent, agents)}")
    if message is None and not sys.stdin.isatty():
        message = sys.stdin.buffer.read().decode(errors="replace").strip()
    if message is not None and not message.strip() and not file:
        raise OperatorError("the message is empty")
    scrubber = Scrubber(secrets_of(loaded.config))
    logs.configure(level="error", output="auto", scrubber=scrubber)
    try:
        with door(loaded, url, scrubber, environment().get("LANG", "")[:2]) as http:
            conversation = Conversation(http, loaded.config.database, agent)
            screen = Screen(conversation, interactive=message is None)
            threading.Thread(target=screen.follow, daemon=True).start()
            try:
                code = screen.converse(file or []) if message is None else screen.once(message, file or [])
            finally:
                conversation.close()
    except KeyboardInterrupt:
        code = INTERRUPTED
    raise typer.Exit(code)


class Screen:
    """Prints a conversation: `follow` runs in a thread while the user types or waits."""

    def __init__(self, conversation: "Conversation", *, interactive: bool) -> None:
        self._conversation = conversation
        self._interactive = interactive
        self._streams = sys.stdout.isatty()
        self._news = threading.Event()
        self._answered: dict[str, dict[str, Any]] = {}
        self._message = ""
        """The message being answered; `_shown` is the printed part of the answer."""
        self._shown = ""
        self._stopped = ""
        """The text that was printed before Ctrl-C."""
        self._is_mid_line = False
        self._tools: dict[str, str] = {}
        self._is_prompting = False
        self._is_interrupted = False

    def once(self, text: str, files: list[Path]) -> int:
        outcome = self._ask(text, files)
        answer = self._answered.get(self._message, {})
        failed = outcome in FAILURES
        if answer.get("text") and not self._shown:
            print_text(answer["text"], err=failed)
        for it in answer.get("files", ()):
            self._note(f"file: {self._conversation.save(it)}")
        return int(failed)

    def converse(self, files: list[Path]) -> int:
        import readline  # noqa: F401 - edits what `input` reads

        print_text(HELP)
        is_leaving = False
        while True:
            self._is_prompting = True
            try:
                line = input(PROMPT).strip()
            except EOFError:
                return 0
            except KeyboardInterrupt:
                if is_leaving:
                    return INTERRUPTED
                print_text("\n(Ctrl-C again leaves.)")
                is_leaving = True
                continue
            finally:
                self._is_prompting = False
            is_leaving = False
            if line in ("/exit", "/quit"):
                return 0
            attached, text = _attached(line)
            if not (text or attached or files):
                continue
            try:
                self._ask(text, [*files, *attached])
                files = []
            except OperatorError as error:
                print_text(error.text(terminal_language()), err=True)
            except KeyboardInterrupt:
                self._stopped = self._shown
                print_text()
                self._ask("/stop", [])

    def _ask(self, text: str, paths: list[Path]) -> str:
        try:
            files = [self._conversation.upload(path) for path in paths]
        except OSError as error:
            raise OperatorError(f"{error.filename}: {error.strerror}") from None
        self._shown, self._tools, self._is_mid_line, self._is_interrupted = "", {}, False, False
        before = signal.signal(signal.SIGINT, self._interrupt)
        try:
            self._message = uuid4().hex  # before it is sent: its answer may be told before it is confirmed
            self._conversation.say(self._message, text, files)
            return self._wait(self._message)
        except KeyboardInterrupt:
            if not self._interactive:
                self._conversation.say(uuid4().hex, "/stop")
            raise
        finally:
            signal.signal(signal.SIGINT, before)

    def _interrupt(self, *_: object) -> None:
        # `_wait` polls for the first Ctrl-C, since other code may swallow the exception. The second one interrupts.
        if self._is_interrupted:
            raise KeyboardInterrupt
        self._is_interrupted = True

    def _wait(self, message: str) -> str:
        looks = 0
        while True:
            for _ in range(round(POLL_SECONDS / NOTICE_SECONDS)):
                if self._news.wait(NOTICE_SECONDS) or self._is_interrupted:
                    break
            self._news.clear()
            if self._is_interrupted:
                raise KeyboardInterrupt
            if (ended := self._conversation.answer(message)) is None:
                continue
            outcome, words = ended
            looks += 1
            if words is not None and message not in self._answered and looks > DELIVERY_LOOKS:
                self._complete({"text": words, "reply_to": message, "files": (), "dropped": False})
            if words is None or message in self._answered:
                return outcome

    def follow(self) -> None:
        """Print events until the stream is refused."""
        for name, data in self._conversation.events():
            if name == "turn":
                self._turn(data)
            elif name == "draft" and data["message"] == self._message and not self._is_prompting:
                self._draft(data.get("text", ""))
            elif name == "message" and data["author"] == "agent":
                self._complete(data)
            self._news.set()

    def _turn(self, turn: dict[str, Any]) -> None:
        for tool in turn["tools"]:
            if self._tools.get(tool["id"]) != tool["state"] and tool["state"] != "done":
                state = {"running": "", "waiting": ": waits for approval"}.get(tool["state"], " failed")
                self._note(f"[{tool['name']}{state}] {tool['about']}".rstrip())
            self._tools[tool["id"]] = tool["state"]
        if turn["note"]:
            self._note(f"({turn['note']})")

    def _draft(self, text: str) -> None:
        # A draft that does not continue the printed text waits for the whole answer.
        text = printable(text).rstrip()
        if self._streams and text.startswith(self._shown):
            self._write(text[len(self._shown) :], end="")
            self._shown, self._is_mid_line = text, bool(text)

    def _complete(self, message: dict[str, Any]) -> None:
        text, is_answer = printable(message["text"]), message["reply_to"] == self._message
        if is_answer and self._shown:
            self._write(text[len(self._shown) :] if text.startswith(self._shown) else f"\n\n{text}")
        elif self._interactive:
            if is_answer or not (self._stopped and text.startswith(self._stopped)):
                self._write("(It was not begun.)" if message["dropped"] else text)
        elif not is_answer:
            self._write(text, err=True)
        if self._interactive:
            for it in message["files"]:
                self._write(f"file: {self._conversation.save(it)}")
        if message["reply_to"]:
            self._answered[message["reply_to"]] = message

    def _note(self, text: str) -> None:
        if self._streams and sys.stderr.isatty():
            self._write("\n" * self._is_mid_line + text, err=True)
            self._is_mid_line = False

    def _write(self, text: str, *, end: str = "\n", err: bool = False) -> None:
        # Keep the line that the user is typing below the output.
        if not self._is_prompting:
            print_text(text + end, nl=False, err=err)
            return
        import readline

        print_text(f"{text}\n{PROMPT}{readline.get_line_buffer()}", nl=False, lead="\r\033[K")


def _attached(line: str) -> tuple[list[Path], str]:
    """`@PATH …`: the files at the beginning of a line, and the text after them; a path that is no file is text."""
    paths = []
    while line.startswith("@"):
        name, _, rest = line[1:].partition(" ")
        if not (path := Path(name).expanduser()).is_file():
            break
        paths.append(path)
        line = rest.lstrip()
    return paths, line
