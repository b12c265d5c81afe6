"""The demo model of a rehearsal: the built-in one at the pace of a person, so that an answer can be watched, and killed.

It understands one request more: "remind me in 1 minute to …", "1 分钟后提醒我…".
"""

import asyncio
import json
import re
from collections.abc import AsyncGenerator
from datetime import UTC, datetime, timedelta
from itertools import chain

from agents.messages import ToolCall, UserMessage, texts
from agents.providers.demo import DemoProvider
from agents.providers.draft import Draft
from agents.providers.provider import Done, ModelEvent, ModelRequest

PIECE_SECONDS = 0.08
_REMIND = re.compile(r"remind me in (\d+) min\w* (?:to |of |about )?(.+)|(\d+) ?分钟后提醒我(.+)", re.IGNORECASE)


class PacedDemo(DemoProvider):
    """A `Provider` like the one it extends."""

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        if call := self._later(request):
            draft = Draft(api=self.api, provider=self.name, model=request.model, timestamp=self._now())
            draft.open(0, "call")
            steps = (
                draft.start(0, vendor_id=call.id, name=call.name),
                draft.add(0, call.arguments_raw),
                draft.close(0),
            )
            for event in chain.from_iterable(steps):
                yield event
            yield Done(message=draft.finished("end_turn"))
            return
        async for each in super().stream(request):
            yield each
            await asyncio.sleep(PIECE_SECONDS)

    def _later(self, request: ModelRequest) -> ToolCall | None:
        """The call that the last message asks for, once."""
        last = request.messages[-1] if request.messages else None
        if not isinstance(last, UserMessage):
            return None
        text = "\n".join(texts(last)).strip().splitlines()[-1]
        found = _REMIND.search(text)
        if found is None or "schedule" not in {tool.name for tool in request.tools}:
            return None
        at = datetime.fromtimestamp(self._now(), UTC) + timedelta(minutes=int(found[1] or found[3]))
        arguments = {"action": "create", "at": at.isoformat(timespec="seconds"), "say": found[2] or found[4]}
        raw = json.dumps(arguments, ensure_ascii=False)
        id_ = f"demo_later_{len(request.messages)}"
        return ToolCall(id=id_, name="schedule", arguments=arguments, arguments_raw=raw)
