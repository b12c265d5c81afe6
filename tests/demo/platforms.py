"""Where the demo's message is written: an emulated platform, the lines of config that name it, and its one person."""

from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Any, Protocol

from tests.demo import story
from tests.emulators.feishu.emulator import FeishuEmulator
from tests.emulators.telegram.emulator import TelegramEmulator


class Platform(Protocol):
    emulator: Any

    def section(self, url: str) -> str:
        """The channel's block of the config, indented by two."""

    def event(self) -> Any:
        """The message as the platform sends it, for people to look at."""

    async def push(self, gateway_url: str) -> None: ...

    async def reply(self) -> dict[str, Any]:
        """Wait for the reply, as the platform received it."""


def _feishu() -> FeishuEmulator:
    emulator = FeishuEmulator(
        app_id=story.APP_ID,
        app_secret=story.APP_SECRET,
        encrypt_key=story.ENCRYPT_KEY,
        verification_token=story.VERIFICATION_TOKEN,
        bot_open_id=story.BOT_OPEN_ID,
        bot_name="Clawgate",
    )
    emulator.users[story.SENDER] = story.SENDER_NAME
    return emulator


@dataclass(slots=True)
class FeishuStage:
    emulator: FeishuEmulator = field(default_factory=_feishu)

    def section(self, url: str) -> str:
        return f"""\
  feishu:
    mode: webhook
    streaming: off
    reaction: ""
    appId: {story.APP_ID}
    appSecret: {story.APP_SECRET}
    encryptKey: {story.ENCRYPT_KEY}
    verificationToken: {story.VERIFICATION_TOKEN}
    baseUrl: "{url}"
    allowFrom: [{story.SENDER}]
"""

    def event(self) -> Any:
        headers, body = self.emulator.encode(self._message())
        return {"headers": headers, "body": body.decode(), "decrypted": self._message()}

    async def push(self, gateway_url: str) -> None:
        (await self.emulator.push(f"{gateway_url}/webhooks/feishu/default", self._message())).raise_for_status()

    async def reply(self) -> dict[str, Any]:
        return asdict((await self.emulator.sent(1))[0])

    def _message(self) -> dict[str, Any]:
        return self.emulator.text_event(story.ASKED, sender=story.SENDER, chat=story.CHAT, message_id=story.MESSAGE_ID)


@dataclass(slots=True)
class TelegramStage:
    """Polled, as the shipped config has it."""

    emulator: TelegramEmulator = field(default_factory=TelegramEmulator)
    _update: dict[str, Any] = field(default_factory=dict)

    def section(self, url: str) -> str:
        person = self.emulator.private(500000011, story.SENDER_NAME)
        self._update = self.emulator.text_update(story.ASKED, chat=person)
        return f"""\
  telegram:
    streaming: off
    botToken: "{self.emulator.token}"
    apiRoot: "{url}"
    allowFrom: ["{person}"]
"""

    def event(self) -> Any:
        return self._update

    async def push(self, gateway_url: str) -> None:
        await self.emulator.push(self._update)

    async def reply(self) -> dict[str, Any]:
        return asdict((await self.emulator.sent(1))[0])


PLATFORMS: dict[str, Callable[[], Platform]] = {"feishu": FeishuStage, "telegram": TelegramStage}
