"""A failure told inside a Responses stream: `response.failed`, and the `error` event in its two forms.

Most codes mean what they mean elsewhere (`agents.providers.openai.errors`). Here are those that only this API has: a
prompt or a picture that it does not take, which asking again would not mend, and its policies, which are refusals.
"""

from collections.abc import Mapping
from typing import Any

from agents.providers.errors import AttemptFailed, error_of
from agents.providers.openai.errors import from_event

_NOT_TAKEN = frozenset(
    {
        "invalid_prompt",
        "data_residency_mismatch",
        "invalid_image",
        "invalid_image_format",
        "invalid_base64_image",
        "invalid_image_url",
        "invalid_image_mode",
        "image_too_large",
        "image_too_small",
        "image_parse_error",
        "image_file_too_large",
        "unsupported_image_media_type",
        "empty_image_file",
        "failed_to_download_image",
        "image_file_not_found",
    }
)


def failure_of(event: Mapping[str, Any]) -> AttemptFailed:
    """`event` is a `response.failed`, or an `error`, flat or with its `error` inside."""
    response = event.get("response")
    error = error_of(response if isinstance(response, dict) else event)
    if not error and event.get("type") == "error":
        error = event
    code = str(error.get("code"))
    blocked = code.endswith("_policy") or "policy_violation" in code
    if blocked or code in _NOT_TAKEN:
        error = {**error, "type": "invalid_request_error"}
    return AttemptFailed(from_event(error), "content_filter" if blocked else "error")
