"""An SDK's packages pass on the names of its modules: types of every endpoint, clients of every cloud. Nobody here uses most
of them, so a module is loaded when a name of it is asked for. That takes a third of the time and the memory.

It holds for the SDK itself and for each package in it that only imports from its own modules; any other is loaded whole.
"""

import ast
import sys
from collections.abc import Sequence
from importlib import import_module
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from types import ModuleType

SDKS = frozenset({"anthropic", "openai"})


def load_by_name() -> None:
    """For whatever of the SDKs is imported from here on."""
    if not any(isinstance(it, _Finder) for it in sys.meta_path):
        sys.meta_path.insert(0, _Finder())


class _Finder(MetaPathFinder):
    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname.partition(".")[0] not in SDKS:
            return None
        spec = PathFinder.find_spec(fullname, path, target)
        if spec and spec.origin and spec.submodule_search_locations:
            spec.loader = _Names(fullname, spec.origin)
        return spec


class _Names(SourceFileLoader):
    def exec_module(self, module: ModuleType) -> None:
        found: dict[str, tuple[str, str]] = {}
        for it in ast.parse(self.get_data(self.path)).body:
            if isinstance(it, ast.ImportFrom) and it.level == 1:
                found |= {name.asname or name.name: (it.module or "", name.name) for name in it.names}
            elif "." in self.name and not _is_harmless(it):
                return super().exec_module(module)

        def named(name: str) -> object:
            if name not in found:
                raise AttributeError(f"module {module.__name__!r} has no attribute {name!r}")
            where, original = found[name]
            source = import_module(f".{where or original}", module.__name__)
            value: object = getattr(source, original) if where else source
            setattr(module, name, value)
            return value

        vars(module)["__getattr__"] = named
        return None


def _is_harmless(statement: ast.stmt) -> bool:
    """The docstring, `__all__` and what it takes from `__future__` change nothing for whoever asks for a name."""
    if isinstance(statement, ast.Assign):
        return ast.unparse(statement.targets[0]) == "__all__"
    return isinstance(statement, ast.Expr) or (
        isinstance(statement, ast.ImportFrom) and statement.module == "__future__"
    )
