"""Feishu's official SDK without its ten thousand models: of its packages, those that load them count as empty.

Import this first, then what judges by its full name: `from lark_oapi.core.utils import AESCipher`.
"""

import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec, PathFinder
from importlib.util import find_spec

AGGREGATES = ("lark_oapi", "lark_oapi.ws", "lark_oapi.api", "lark_oapi.channel", "lark_oapi.channel.auth")
"""Their `__init__` imports all that is beneath, as does that of each API."""


class EmptyPackages:
    """Finds a package and leaves out its `__init__`. A module is found as ever."""

    @staticmethod
    def find_spec(name: str, path: Sequence[str] | None = None, target: object = None) -> ModuleSpec | None:
        if name not in AGGREGATES and not name.startswith("lark_oapi.api."):
            return None
        found = PathFinder.find_spec(name, path)
        if found is None or found.submodule_search_locations is None:
            return found
        empty = ModuleSpec(name, None, is_package=True)
        empty.submodule_search_locations = found.submodule_search_locations
        return empty


assert find_spec("lark_oapi") is not None
sys.meta_path.insert(0, EmptyPackages)
