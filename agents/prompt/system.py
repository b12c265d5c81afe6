"""The system prompt of a turn: the sections that apply, in order, cut where the provider's cache may end.

The same facts give the same bytes. Nothing about a message goes in here: what the gateway knows of one stands in the
user message (`agents.prompt.inbound`).
"""

from collections.abc import Sequence

from agents.prompt.facts import PromptFacts
from agents.prompt.markers import BOUNDARY
from agents.prompt.sections import STABLE, VOLATILE, Section
from agents.providers.provider import System


def build_system(facts: PromptFacts) -> System:
    """Both parts, without the boundary itself and without blank lines at their ends."""
    return System(stable=_joined(STABLE, facts), volatile=_joined(VOLATILE, facts))


def render(system: System) -> str:
    """The whole prompt as people read it, the boundary on a line of its own."""
    return f"{system.stable}\n\n{BOUNDARY}\n\n{system.volatile}"


def _joined(sections: Sequence[Section], facts: PromptFacts) -> str:
    return "\n\n".join(text for section in sections if (text := section(facts)) is not None).strip()
