"""A model that is overloaded or cut off for a while: the gateway goes on asking, and says so to whoever watches."""

from pathlib import Path

from tests.emulators.models.script import Fault, says
from tests.emulators.models.server import Reply
from tests.running import running
from tests.web_page import WEB, opened

BUSY = Fault(status=529, type="overloaded_error")


async def test_model_overload_is_retried_with_backoff_and_shown(tmp_path: Path) -> None:
    script: list[Reply] = [*[BUSY] * 4, Fault(status=503), Fault(status=429), says("here")]
    more = "retry: { pauseSeconds: 0.02 }"
    async with (
        running(tmp_path, script=script, feishu=WEB, more=more) as house,
        opened(house.url) as page,
    ):
        await page.say("你好")
        assert await page.answers(1) == ["here"]
        assert len(house.anthropic.requests) == 7
        notes = [turn["note"] for turn in page.named("turn")]
        assert {note for note in notes if note} == {"模型现在很繁忙，正在重试。"}
        assert notes[-1] == ""
