"""Connect Feishu from the operator's page: show a QR code, wait for the scan, and put the new app in force.

This is available while the config has no Feishu account, if a change of `.env` reloads the config. The person who
scans becomes an owner before the app's keys are written, so an app in force always has an owner. Secrets are never logged
or shown.
"""

import asyncio
import io
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

import structlog

from channels.channel import DeliveryError
from channels.registration import NewApp, PendingRegistration, RegistersApps, RegistrationEnded
from channels.web.admission import OPERATOR
from gateway.config.channels import CHANNEL_TYPES, configured
from gateway.config.load import DOTENV, ConfigFile, append, load
from gateway.config.problems import ConfigErrors
from gateway.config.root import Config
from gateway.http.request import Unserved
from gateway.state.owners import OWNERS_NOTICE
from gateway.state.runtime import Runtime
from gateway.store.errors import StoreUnavailable
from gateway.store.sessions import LOCAL_PERSON

IN_FORCE_SECONDS = 20.0
LOOK_SECONDS = 0.05
_APP_ID, _APP_SECRET = "FEISHU_APP_ID", "FEISHU_APP_SECRET"
_NOT_OFFERED = 409, "scan-not-offered", "A Feishu app is configured already, or this config is not read from a file."
_UNUSED = (
    409,
    "scan-unused",
    "The config would not use the app: write appId: ${FEISHU_APP_ID:-} and appSecret: ${FEISHU_APP_SECRET:-} "
    "under channels.feishu first.",
)
_BROKEN = 409, "config-broken", "The config file has a mistake. Mend it first: the log and `check` say where."
_UNREACHED = 422, "feishu-unreachable", "Feishu cannot be reached from this machine."
ScanState: TypeAlias = Literal["none", "waiting", "done", "denied", "expired", "refused", "unwritten", "late"]

log = structlog.get_logger()


@dataclass(eq=False)
class AppScan:
    """One scan at a time; a second `begin` shows the same QR code. `spawn` runs a task as long as the gateway runs."""

    runtime: Runtime
    spawn: Callable[[Coroutine[None, None, None]], object]
    _state: ScanState = "none"
    _pending: PendingRegistration | None = None
    _app_id: str = ""
    _lock: asyncio.Lock = field(default_factory=asyncio.Lock)

    def is_offered(self, person: str) -> bool:
        setup = self.runtime.setup
        is_owner = person == OPERATOR and (not setup.owners or LOCAL_PERSON in setup.owners)
        has_feishu = any(it.kind.name == "feishu" for it in configured(setup.config.channels))
        return is_owner and not has_feishu and self.runtime.config_file is not None

    async def begin(self, person: str) -> Mapping[str, Any]:
        """Return the link to scan and its QR code: `{"link", "picture" (data URI), "minutes"}`. Raise Unserved."""
        async with self._lock:
            origin = self.runtime.config_file
            if not self.is_offered(person) or origin is None:
                raise Unserved(*_NOT_OFFERED)
            if self._state != "waiting" or self._pending is None:
                registration = registration_at(await asyncio.to_thread(_base_url, origin))
                try:
                    pending = await registration.begin()
                except DeliveryError as error:
                    log.warning("feishu_scan_not_begun", error=str(error))
                    raise Unserved(*_UNREACHED) from None
                self._state, self._pending = "waiting", pending
                self.spawn(self._finish(registration, pending, origin))
            minutes = max(1, round(self._pending.seconds / 60))
            return {"link": self._pending.link, "picture": qr_picture(self._pending.link), "minutes": minutes}

    @property
    def state(self) -> Mapping[str, str]:
        """Return `{"state", "app"}`; `app` is the new app's id once it is known."""
        return {"state": self._state, "app": self._app_id}

    async def _finish(self, registration: RegistersApps, pending: PendingRegistration, origin: ConfigFile) -> None:
        try:
            app = await registration.wait(pending)
            self._app_id = app.app_id
            await self._adopt(app)
            await asyncio.to_thread(append, origin.path.parent.resolve() / DOTENV, app.variables)
            await self._in_force(app)
            self._state = "done"
            log.info("feishu_app_created", app=app.app_id, owner=f"feishu:{app.scanned_by}")
        except RegistrationEnded as ended:
            self._state = ended.reason
        except DeliveryError as error:
            self._state = "refused"
            log.warning("feishu_scan_failed", error=str(error))
        except TimeoutError:  # an OSError, too
            self._state = "late"
        except OSError as error:
            self._state = "unwritten"
            log.error("feishu_app_not_kept", app=self._app_id, error=error.strerror)
        except StoreUnavailable as error:  # the owner cannot be stored, so the app is not put in force
            self._state = "refused"
            log.error("feishu_app_not_kept", app=self._app_id, error=str(error))

    async def _adopt(self, app: NewApp) -> None:
        runtime, now = self.runtime, self.runtime.now()
        await runtime.store.owners.adopt(("feishu", "default", app.scanned_by), by=LOCAL_PERSON, at=now)
        await runtime.store.owners.keep_page(True, by=f"feishu:{app.scanned_by}", at=now)  # the same person uses both
        await runtime.setup.owners.claimed.load()
        await runtime.store.notify(OWNERS_NOTICE)

    async def _in_force(self, app: NewApp) -> None:
        """Wait until the reloaded config has the app. Raise TimeoutError."""
        async with asyncio.timeout(IN_FORCE_SECONDS):
            while not _has(self.runtime.setup.config, app.app_id):  # noqa: ASYNC110 - the reload tells nobody
                await asyncio.sleep(LOOK_SECONDS)


def registration_at(base_url: str) -> RegistersApps:
    """Return a new registration at Feishu's open platform; at the default address if `base_url` is empty."""
    create = CHANNEL_TYPES["feishu"].registration
    assert create is not None
    return create(base_url)


def qr_text(link: str) -> str:
    """Draw a QR code in a terminal."""
    import segno

    drawn = io.StringIO()
    segno.make(link, micro=False).terminal(drawn, border=2, compact=True)
    return drawn.getvalue()


def qr_picture(link: str) -> str:
    """Return a QR code as an SVG data URI."""
    import segno

    picture: str = segno.make(link, micro=False).svg_data_uri(scale=5, border=3, dark="#000", light="#fff")
    return picture


def _base_url(origin: ConfigFile) -> str:
    """Return the open platform that the config names. Raise Unserved if the config would not use a new app."""
    trial = {_APP_ID: "cli_trial", _APP_SECRET: "trial-secret"}
    try:
        config = load(origin.path, {**origin.environment, **trial}).config
    except (ConfigErrors, OSError):
        raise Unserved(*_BROKEN) from None
    if not _has(config, trial[_APP_ID]) or config.channels.feishu is None:
        raise Unserved(*_UNUSED)
    return config.channels.feishu.base_url


def _has(config: Config, app_id: str) -> bool:
    return config.channels.feishu is not None and config.channels.feishu.app_id == app_id
