"""Operations: methods that take a connection, each in a transaction of its own.

`reads` and `writes` turn one into what its callers await: it runs off the event loop, and returns after the commit.
"""

from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Concatenate, ParamSpec, Protocol, TypeAlias, TypeVar

from sqlalchemy import Connection

P = ParamSpec("P")
T = TypeVar("T")


class Run(Protocol):
    """Run an operation in a transaction of its own and commit. Raises StoreUnavailable."""

    def __call__(self, operation: Callable[[Connection], T]) -> Awaitable[T]: ...


class Database:
    """`read` and `write` may be the same."""

    def __init__(self, *, read: Run, write: Run) -> None:
        self.read = read
        self.write = write


D = TypeVar("D", bound=Database)
Operation: TypeAlias = Callable[Concatenate[D, Connection, P], T]
Method: TypeAlias = Callable[Concatenate[D, P], Coroutine[Any, Any, T]]


def reads(operation: Operation[D, P, T]) -> Method[D, P, T]:
    return _awaited(operation, lambda database: database.read)


def writes(operation: Operation[D, P, T]) -> Method[D, P, T]:
    return _awaited(operation, lambda database: database.write)


def _awaited(operation: Operation[D, P, T], run: Callable[[D], Run]) -> Method[D, P, T]:
    async def method(self: D, /, *args: P.args, **names: P.kwargs) -> T:
        return await run(self)(lambda connection: operation(self, connection, *args, **names))

    return method
