"""The section `hooks`: what another system's event has the gateway say, or an agent do (docs/hooks.md)."""

from typing import Annotated, Literal

from pydantic import AfterValidator, Field, SecretStr, StringConstraints

from channels.section import Section
from gateway.config.budgets import Rate, RateText, rate_of
from gateway.config.server import SecretToken
from gateway.config.template import template

Verify = Literal["hmac", "github", "token"]
HookName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_-]{1,64}$")]
Filled = Annotated[str, StringConstraints(max_length=8_000), AfterValidator(template)]


class HookConfig(Section):
    """One hook: `POST /hooks/NAME`."""

    secret: SecretToken = SecretStr("")
    """The secret that the other system proves to know: at least 16 characters, such as the output of
    `openssl rand -hex 32`."""
    verify: Verify
    """The proof: `hmac`, a signature of time and body in `X-Clawgate-Signature`; `github`, GitHub's
    `X-Hub-Signature-256`; `token`, the secret itself as `Authorization: Bearer …`."""
    to: Annotated[str, Field(min_length=1)]
    """The place where it is said, or where the agent answers: `channel[:account]:chat[#thread]`."""
    say: Filled | None = None
    """Text that is sent, without a model: Markdown, with `{{ body.a.b }}` and `{{ headers.x-y }}`, whose values are shown
    as plain text."""
    task: Filled | None = None
    """Instead of `say`: what the agent is to do, in a separate turn in that chat. Values are fenced as a stranger's."""
    agent: str | None = None
    """The agent that does the `task`; by default that chat's."""
    rate: RateText = "60/1m"
    """Events that are taken in a time, at each replica; beyond it the answer is 429."""

    @property
    def limit(self) -> Rate:
        return rate_of(self.rate)
