"""The port of a platform that creates an app for a bot from one scan, and the types that pass through it.

The person who scans confirms the app on the platform; its keys and the person's id come back. Nothing has to be copied.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, Protocol, TypeAlias

EndReason: TypeAlias = Literal["denied", "expired", "refused"]


@dataclass(frozen=True, kw_only=True, slots=True)
class PendingRegistration:
    """A pending registration. `link` is for the person who scans it; it ends after `seconds`."""

    link: str
    seconds: float
    interval_seconds: float
    device_code: str = field(repr=False)


@dataclass(frozen=True, kw_only=True, slots=True)
class NewApp:
    """A registered app. `scanned_by` is the person's id in it; `variables` are those of `.env` that connect it."""

    app_id: str
    scanned_by: str
    base_url: str
    variables: Mapping[str, str] = field(repr=False)


class RegistrationEnded(Exception):
    """The registration ended without an app."""

    def __init__(self, reason: EndReason) -> None:
        super().__init__(reason)
        self.reason = reason


class RegistersApps(Protocol):
    """One registration at the platform."""

    async def begin(self) -> PendingRegistration:
        """Ask for a link to scan. Raises DeliveryError."""

    async def wait(self, pending: PendingRegistration) -> NewApp:
        """Poll until a person has confirmed the app. Raises RegistrationEnded, or DeliveryError for a broken answer.

        An unreachable platform is polled again until the registration expires."""
