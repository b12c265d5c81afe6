"""What Feishu's error codes mean for a send: one of four delivery errors, or a reason to try in another way.

Source: the open platform's list of message and common error codes (2026). A code we do not know is refused: repeating
what nobody understands helps nobody, and the log names it.
"""

from channels.channel import DeliveryError, Gone, RateLimited, Refused, Unreachable

TOKEN_CODES = frozenset({99991661, 99991663, 99991664, 99991665, 99991668, 99991671})
"""The tenant token is missing, wrong or expired: fetch a new one, once."""
WITHDRAWN_CODES = frozenset({230011, 230110, 231003})
"""The message to reply to is gone: send to the chat instead."""
NO_THREAD_CODES = frozenset({230071})
"""The chat knows no threads: reply without."""
BAD_CONTENT_CODES = frozenset({230001, 230099, 230055, 230054})
"""It is what we made of the text that was not taken: send it as plain text."""
AUDIT_CODES = frozenset({230022, 230028})
"""The text did not pass an audit: the person is told so, instead of hearing nothing."""
RATE_CODES = frozenset({99991400, 230020, 11232, 11233, 11247})
BUSY_CODES = frozenset({230049, 1, 1000040343})
GONE_CODES = frozenset(
    {230002, 230013, 230018, 230019, 230029, 230050, 230053, 230111, 232009, 99992354, 234004, 234040}
)

TOO_LARGE_CODES = frozenset({234006, 234037})

_HINTS = {
    99991672: "the app lacks a permission (scope); add it in the developer console and publish a version",
    99991401: "this machine's address is not on the app's IP whitelist",
    99991403: "the app's monthly API quota is used up",
    230006: "the app's bot is switched off, or no version has been published",
    230022: "the text was refused as sensitive content",
    230028: "the text did not pass the tenant's audit",
    230025: "the text is too long",
    230027: "the app may not send there",
    230035: "the app may not send there",
    234002: "the app may not read this file; is the scope im:message:readonly there, and a version published?",
    234009: "the app may not read this file; is the scope im:message:readonly there, and a version published?",
    234038: "the chat is in restricted mode: its files cannot be fetched",
    234043: "what comes in cards, stickers and forwarded bundles cannot be fetched",
    10003: "the app id or secret is malformed",
    10014: "the app id does not exist there, or the secret is wrong; is baseUrl right for this app?",
}


def delivery_error(code: int, *, status: int, retry_after_seconds: float | None = None) -> DeliveryError:
    """The error that `code` stands for. Its text is ours: Feishu's may quote what was sent."""
    name = str(code)
    if code in RATE_CODES or status == 429:
        return RateLimited(f"Feishu asks to slow down ({code})", code=name, retry_after_seconds=retry_after_seconds)
    if code in BUSY_CODES or status >= 500:
        return Unreachable(f"Feishu is busy ({code}, HTTP {status})", code=name)
    if code in GONE_CODES or code in WITHDRAWN_CODES:
        return Gone(f"the chat, topic or person is out of reach ({code})", code=name)
    return Refused(f"Feishu refused it ({code}): {_HINTS.get(code, 'see the list of error codes')}", code=name)
