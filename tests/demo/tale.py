"""The demo told in thirty lines: who writes, what the gateway and the model do, and the reply as the person sees it."""

from typing import Any

from rich.console import Console, RenderableType
from rich.markdown import Markdown
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from tests.demo.play import Layer

RESULT_CHARS_MAX = 60
NEXT = "That was the real gateway between two emulators. Every layer: make demo ARGS=--full. To serve: make run"


def tell(layers: list[Layer], console: Console) -> None:
    context, prompt = _first(layers, "context"), _first(layers, "system_prompt")
    name, person = context["channel"].capitalize(), context["sender"]["name"]
    answers = [it.data for it in layers if it.name == "response"]
    last = answers[-1]
    console.print(Text("One message through Clawgate. Nothing leaves this machine.\n", style="bold"))
    console.print(Text.assemble(f"   {person} writes in {name}: ", (context["text"], "cyan")))
    console.print()
    steps = Table.grid(padding=(0, 1))
    for number, step in enumerate(
        (
            f"{name} delivers it. The gateway verifies the sender, stores the message and only then says so.",
            f"The agent's prompt is made: {len(prompt):,} characters, and the message with who, where and when.",
            f"{last['provider']}/{last['model']} is asked {len(answers)} times. It works with the agent's own tools:",
        ),
        start=1,
    ):
        steps.add_row(Text(f" {number}", style="bold green"), step)
    console.print(steps)
    console.print(_calls(layers))
    console.print(Text.assemble((" 4", "bold green"), " The answer is stored, then sent until it has arrived:"))
    console.print(Panel(_rendered(_first(layers, "reply")), title="Clawgate", title_align="left", border_style="cyan"))
    used = {key: sum(it["usage"][key] for it in answers) for key in ("input", "output")}
    cost = sum(it["cost"] or 0 for it in answers)
    console.print(f"   {used['input']:,} tokens in, {used['output']:,} out" + (f", ${cost:.3f}" if cost else ""))
    console.print(Text(f"\n{NEXT}", style="bold"))


def _first(layers: list[Layer], name: str) -> Any:
    return next(it.data for it in layers if it.name == name)


def _calls(layers: list[Layer]) -> Table:
    """A line for each tool call, with what came of it."""
    table = Table.grid(padding=(0, 2))
    results = [it.data for it in layers if it.name == "tool_result"]
    for call, result in zip((it.data for it in layers if it.name == "tool_call"), results, strict=True):
        text = "".join(part.get("text", "") for part in result["content"])
        short = " ".join(text.split()) if len(text) <= RESULT_CHARS_MAX else f"{len(text):,} characters"
        target = str(next(iter(call["arguments"].values()), ""))
        table.add_row("    ", Text(call["name"], style="yellow"), target, Text(short, style="green"))
    return table


def _rendered(reply: dict[str, Any]) -> RenderableType:
    """The reply as the platform shows it: Feishu takes Markdown, Telegram a text and where it is styled."""
    if "entities" not in reply:
        return Markdown(reply["text"])
    text = Text(reply["text"])
    for it in reply["entities"]:
        text.stylize("bold cyan", it["offset"], it["offset"] + it["length"])
    return text
