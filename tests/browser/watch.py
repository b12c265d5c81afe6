"""What a page complains of while nobody looks: errors, dialogs, and requests that leave the gateway.

A test that passes while the console is red has not passed. What a test means to provoke it says with `expects`.
"""

from urllib.parse import urlsplit

from playwright.async_api import BrowserContext, ConsoleMessage, Dialog, Request

OWN_SCHEMES = ("data", "blob", "about")


class Watch:
    """Keeps an eye on every page of one browser context, which may speak to `home` and to nobody else."""

    def __init__(self, context: BrowserContext, home: str) -> None:
        self._home = home
        self._seen: list[str] = []
        self._expected: list[str] = []
        context.on("console", self._console)
        context.on("weberror", lambda error: self._seen.append(f"error: {error.error}"))
        context.on("request", self._request)
        context.on("page", lambda page: page.on("dialog", self._dialog))

    def expects(self, *parts: str) -> None:
        """Complaints that hold one of these are the test's own doing."""
        self._expected += parts

    @property
    def complaints(self) -> list[str]:
        return [seen for seen in self._seen if not any(part in seen for part in self._expected)]

    def _console(self, message: ConsoleMessage) -> None:
        if message.type in ("error", "warning", "assert"):
            self._seen.append(f"console {message.type}: {message.text} ({message.location.get('url', '')})")

    def _request(self, request: Request) -> None:
        url = urlsplit(request.url)
        if url.scheme not in OWN_SCHEMES and f"{url.scheme}://{url.netloc}" != self._home:
            self._seen.append(f"request elsewhere: {request.url}")

    async def _dialog(self, dialog: Dialog) -> None:
        self._seen.append(f"dialog: {dialog.message}")
        await dialog.dismiss()
