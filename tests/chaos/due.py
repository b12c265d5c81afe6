"""Rows that come due within seconds: reminders and work, each in a chat of its own and with a serial, as if somebody had
written it."""

import time
from collections.abc import Sequence

from tests.chaos.ledger import Due
from tests.chaos.scene import Scene
from tests.reminders import put, reminder

ROWS = 6
SOON_SECONDS = (1, 2, 3)


def reminders(scene: Scene) -> Sequence[Due]:
    """Puts them there, and into the ledger."""
    rows, found, now = [], [], int(time.time())
    for number in range(ROWS):
        message = scene.platform.expect("plain", scene.platform.chat.chat(scene.chance), acked=0)
        due = float(now + scene.chance.choice(SOON_SECONDS))
        what = {"say": f"R {message.serial} n1 p1/1"} if number % 2 else {"task": f"{message.serial} plain"}
        rows.append(reminder(message.serial, message.chat, now=now, due=due, **what))
        found.append(Due(at=due))
        scene.ledger.due[message.serial] = found[-1]
    put(scene.database, rows)
    return found
