"""What the renderer makes, judged by Telegram's rules on entities and shown as HTML for people to read."""

from html import escape
from typing import Any

from channels.telegram.render import ENTITIES_MAX, rendered
from tests.emulators.telegram.formatted import given_entities
from tests.emulators.telegram.models import Entity

TAGS = {"bold": "b", "italic": "i", "strikethrough": "s", "spoiler": "tg-spoiler", "text_link": "a"}


def plain(markdown: str) -> str:
    return rendered(markdown).plain


def seen(markdown: str) -> str:
    """What a reader sees. Raises AssertionError where Telegram would refuse, change or drop a part of the markup."""
    made = rendered(markdown)
    assert len(made.entities) <= ENTITIES_MAX
    kept = given_entities(made.text, [Entity(**entity).model_dump(exclude_unset=True) for entity in made.entities])
    mailto = [entity for entity in made.entities if entity.get("url", "").startswith("mailto:")]
    places = [(entity["type"], entity["offset"], entity["length"]) for entity in (*kept.entities, *mailto)]
    assert sorted(places) == sorted((entity["type"], entity["offset"], entity["length"]) for entity in made.entities)
    assert made.text == made.text.rstrip()
    return made.text


def render(markdown: str) -> str:
    """As HTML."""
    made = rendered(markdown)
    seen(markdown)
    raw, html, inside = made.text.encode("utf-16-le"), "", list[dict[str, Any]]()
    borders = {at for one in made.entities for at in (one["offset"], one["offset"] + one["length"])}
    cuts = sorted({0, len(raw) // 2, *borders})
    for begin, end in zip(cuts, [*cuts[1:], cuts[-1]], strict=True):
        now = [one for one in made.entities if one["offset"] <= begin < one["offset"] + one["length"]]
        kept = next((at for at, one in enumerate(inside) if one not in now), len(inside))
        html += "".join(_tags(one)[1] for one in reversed(inside[kept:]))
        opened = [one for one in now if one not in inside[:kept]]
        html += "".join(_tags(one)[0] for one in opened)
        inside = inside[:kept] + opened
        html += escape(raw[2 * begin : 2 * end].decode("utf-16-le"), quote=False)
    return html


def _tags(entity: dict[str, Any]) -> tuple[str, str]:
    kind = entity["type"]
    match entity:
        case {"url": url}:
            return f'<a href="{escape(url)}">', "</a>"
        case {"language": language}:
            return f'<pre><code class="language-{language}">', "</code></pre>"
        case _:
            return f"<{TAGS.get(kind, kind)}>", f"</{TAGS.get(kind, kind)}>"
