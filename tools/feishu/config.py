"""Config of the tool `feishu`: what it may call, as whom, and who is asked before it writes.

Without an area there is no such tool. The host is that of the account (`channels.feishu.baseUrl`), and nothing that a
model writes can change it. The paths of each area are a table in `tools.feishu.areas`.
"""

from typing import Annotated, Literal, TypeAlias

from pydantic import Field

from channels.section import Listed, Section
from tools.feishu.areas import Area

ActsAs: TypeAlias = Literal["person", "app"]


class FeishuToolConfig(Section):
    """The tool `feishu`: one call of Feishu's open platform as the person who asks (docs/feishu-as-the-person.md)."""

    areas: Annotated[tuple[Area, ...], Listed] = ()
    """Parts of Feishu that may be called, out of `docs`, `wiki`, `sheets`, `bitable`, `calendar`, `tasks`, `contacts` and
    `messages`. None means that there is no such tool. With one of the first four, `read` opens links to it."""
    account: str = "default"
    """The Feishu account whose app and address are used."""
    acts_as: Annotated[ActsAs, Field(alias="as")] = "person"
    """`person` has the rights of the person who asks, after their login; `app` has those of the bot's app, for everybody
    who may use the tool."""
    write: Literal["ask", "allow", "deny"] = "ask"
    """`ask` has the person who acts approve each change, shown whole; with `as: app` an approver. `allow` changes without
    asking; `deny` only reads."""
    timeout_seconds: Annotated[float, Field(gt=0, le=120)] = 20
    """Timeout of one call in seconds."""
