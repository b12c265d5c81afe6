"""The config in force as YAML without its secrets, for the operator's console.

Three nets, one behind the other: secrets are masked by their type, addresses lose what is before their host, and the
scrubber strikes out what else of a configured secret is left. Headers of providers are masked whole.
"""

import re
from typing import Any

import yaml

from gateway.config.root import Config
from gateway.observe.secrets import REDACTED, Scrubber, redacted
from gateway.operate.clipped import brief

_CREDENTIALS = re.compile(r"(://)[^/\s@]+@")
_STARS = re.compile(r"\*{4,}")
VALUE_CHARS, TEXT_CHARS = 2_000, 100_000
"""Characters of one value, and of the whole; the file has the rest."""


def config_view(config: Config, scrubber: Scrubber) -> dict[str, str]:
    """`written` has what differs from the defaults, `whole` everything."""
    return {
        "written": _yaml(config, scrubber, exclude_defaults=True),
        "whole": _yaml(config, scrubber, exclude_defaults=False),
    }


def _yaml(config: Config, scrubber: Scrubber, *, exclude_defaults: bool) -> str:
    tree: dict[str, Any] = config.model_dump(mode="json", by_alias=True, exclude_defaults=exclude_defaults)
    for provider in tree.get("providers", {}).values():
        if headers := provider.get("headers"):
            headers.update(dict.fromkeys(headers, REDACTED))
    text = yaml.safe_dump(brief(tree, VALUE_CHARS), sort_keys=False, allow_unicode=True, width=10_000)
    text = _CREDENTIALS.sub(rf"\1{REDACTED}@", _STARS.sub(REDACTED, text))
    return str(brief(redacted(scrubber.scrub(text)), TEXT_CHARS))
