"""The process environment, read in this module and nowhere else. Everybody else is handed a mapping."""

import os
from collections.abc import Mapping


def environment() -> Mapping[str, str]:
    """A copy of the environment as it is now; undecodable bytes are replaced, so that every value is text."""
    return {name: value.encode(errors="surrogateescape").decode(errors="replace") for name, value in os.environ.items()}
