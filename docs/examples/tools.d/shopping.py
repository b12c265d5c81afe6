"""A shopping list for each chat, in a file beside this one."""

import json
from pathlib import Path
from typing import Literal

from tools.tool import Call, ToolError

LISTS = Path(__file__).with_suffix(".json")


async def shopping_list(call: Call, action: Literal["show", "add", "remove"], item: str = "") -> str:
    """Keep the shopping list of this chat: show it, add something, or remove what was bought.

    Args:
        action: What to do. The answer is the list as it is then.
        item: What to add or to remove.
    """
    lists = json.loads(LISTS.read_text(encoding="utf-8")) if LISTS.exists() else {}
    items = lists.setdefault(f"{call.message.channel}:{call.message.chat.id}", [])
    if action != "show" and not item.strip():
        raise ToolError("INVALID_ARGUMENT", "say which item")
    if action == "add" and item not in items:
        items.append(item)
    if action == "remove" and item in items:
        items.remove(item)
    LISTS.write_text(json.dumps(lists, ensure_ascii=False, indent=1), encoding="utf-8")
    return "\n".join(f"- {it}" for it in items) or "The list is empty."
