"""The server takes the names of members in two spellings, and Google's own SDK mixes them: `include_thoughts` is
`includeThoughts`. The rules know only the second; what a tool or a person named is never respelt."""

import re
from typing import Any

_DATA = frozenset({"args", "response", "parametersJsonSchema", "responseJsonSchema", "partMetadata", "default"})
"""Members whose values are not the protocol's but somebody's own."""


def respelt(value: Any) -> Any:
    """The same message with the members' names in camel case."""
    if isinstance(value, list):
        return [respelt(item) for item in value]
    if not isinstance(value, dict):
        return value
    respelled: dict[str, Any] = {}
    for name, member in value.items():
        name = re.sub(r"(?<=[a-z])_([a-z])", lambda match: match[1].upper(), name)
        if name == "properties" and isinstance(member, dict):
            respelled[name] = {key: respelt(inner) for key, inner in member.items()}
        else:
            respelled[name] = member if name in _DATA else respelt(member)
    return respelled
