"""State of an account's connection to its platform, for `/readyz`, `status`, `doctor` and the page.

Each part of a channel (identity, events, deliveries) reports separately; the worst report is the condition. Causes are
predefined per channel, each with its fix in both languages; nothing here contains a secret.
"""

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple, TypeAlias

from channels.bilingual import NO_WORDS, Bilingual
from channels.channel import DeliveryError, Rejected

Link: TypeAlias = Literal["ok", "starting", "silent", "unreachable", "conflict", "refused"]
WORST: tuple[Link, ...] = ("refused", "conflict", "unreachable", "silent", "starting", "ok")
REJECTIONS_MAX = 5
"""Consecutive refused deliveries before a fault is reported: a single one may be forged."""


class Cause(NamedTuple):
    """The reason for a failing connection, and the next step. `{at}` in it is replaced by the path of the account's keys."""

    state: Link
    reason: Bilingual
    fix: Bilingual

    def told(self, detail: str = "", code: str = "") -> Bilingual:
        """Return the reason; `detail` replaces the English one, `code` is the platform's."""
        return Bilingual(detail or self.reason.en, f"{self.reason.zh}（{code}）" if code else self.reason.zh)

    def fix_at(self, at: str) -> Bilingual:
        return self.fix.each(lambda it: it.replace("{at}", at))


def unanswered(en: str, zh: str) -> Cause:
    """Build the cause for a webhook that has received nothing from the platform of these names."""
    return Cause(
        "silent",
        Bilingual("no gateway answers at server.publicUrl", "server.publicUrl 处没有网关应答"),
        Bilingual(
            f"let its name and the proxy lead to this gateway; a first delivery of {en} ends this, too",
            f"请让该域名和代理指向本网关；收到{zh}的第一条推送后也会恢复",
        ),
    )


def keys_of(channel: str, account: str) -> str:
    return f"channels.{channel}" if account == "default" else f"channels.{channel}.accounts.{account}"


@dataclass(frozen=True, kw_only=True, slots=True)
class ChannelState:
    """`since` is a Unix time; `reason` and `fix` are empty while the state is `ok` or `starting`."""

    state: Link
    since: float
    reason: Bilingual = NO_WORDS
    fix: Bilingual = NO_WORDS

    @property
    def is_bad(self) -> bool:
        return self.state not in ("ok", "starting")


class Condition:
    """`causes` are the platform's, by name; `cause_of` maps an error to one of them."""

    def __init__(
        self,
        channel: str,
        account: str,
        *,
        causes: Mapping[str, Cause],
        cause_of: Callable[[DeliveryError], str],
        now: Callable[[], float] = time.time,
    ) -> None:
        self._at = keys_of(channel, account)
        self._causes = causes
        self._cause_of = cause_of
        self._now = now
        self._reports: dict[str, ChannelState] = {}
        self._failing: dict[str, str] = {}
        """The current cause of each failing part."""
        self._rejections = 0
        self._heard = False
        self.awaits_deliveries = False
        """True if events arrive at the webhook."""
        self.state = ChannelState(state="starting", since=now())

    def ok(self, part: str) -> None:
        self._report(part, "ok")

    def starting(self, part: str) -> None:
        """Report that the part starts, or restarts after a normal disconnect."""
        self._report(part, "starting")

    def fails(self, part: str, cause: str, detail: str = "", code: str = "") -> None:
        """Report a cause; `detail` replaces its English reason, `code` is the platform's."""
        known = self._causes[cause]
        self._report(part, known.state, known.told(detail, code), self._fix(cause))
        self._failing[part] = cause

    def ends(self, part: str, cause: str) -> None:
        """Clear the part if `cause` is what it last reported."""
        if self._failing.get(part) == cause:
            self.ok(part)

    def failed(self, part: str, error: DeliveryError) -> None:
        cause = self._cause_of(error)
        detail = "" if self._causes[cause].state == "conflict" else str(error)
        self.fails(part, cause, detail, error.code)

    @contextmanager
    def watching(self, part: str) -> Iterator[None]:
        """Report how the block ends: `ok`, or the DeliveryError that it raises."""
        try:
            yield
        except DeliveryError as error:
            self.failed(part, error)
            raise
        self.ok(part)

    def rejected(self, rejected: Rejected) -> str:
        """Count a refused delivery. Return the next step, or "" if no setting is to blame."""
        if not rejected.cause:
            return ""
        self._rejections += 1
        if self._rejections >= REJECTIONS_MAX:
            self.fails("deliveries", rejected.cause, f"no delivery is taken any more: {rejected.reason}")
        return self._fix(rejected.cause).en

    @property
    def is_unheard(self) -> bool:
        """True if the platform should call the webhook, and has not."""
        return self.awaits_deliveries and not self._heard and not self._rejections

    def reached(self, reason: str) -> None:
        """Report whether `server.publicUrl` leads here; `reason` says why not, or is empty."""
        if reason:
            self.fails("deliveries", "unanswered", f"server.publicUrl: {reason}")
        else:
            self.ends("deliveries", "unanswered")

    def genuine(self) -> None:
        self._heard = True
        self._rejections = 0
        if "deliveries" in self._failing:
            self.ok("deliveries")

    def _fix(self, cause: str) -> Bilingual:
        return self._causes[cause].fix_at(self._at)

    def _report(self, part: str, state: Link, reason: Bilingual = NO_WORDS, fix: Bilingual = NO_WORDS) -> None:
        self._failing.pop(part, None)
        self._reports[part] = ChannelState(state=state, since=self._now(), reason=reason, fix=fix)
        worst = min(self._reports.values(), key=lambda it: WORST.index(it.state))
        since = self.state.since if worst.state == self.state.state else self._now()
        self.state = replace(worst, since=since)
