"""Every limit of a turn and a chat, with its number. Reaching one is a sentence to the user, never silence."""

from agents.turn import Count, Seconds, TurnLimits


class LimitsConfig(TurnLimits):
    parallel_turns: Count = 64
    """Turns that run at the same time; more wait in the inbox."""
    pending_per_session: Count = 50
    """Messages of one chat waiting for their turn; one more is answered with "too many"."""
    pending_per_sender: Count = 200
    """Messages of one person waiting in all chats and topics together; one more is answered with "too many". Commands have
    as much room again."""
    file_bytes: Count = 20_971_520
    """One file, to the agent or from it."""
    uploads_bytes: Count = 209_715_200
    """Files that were uploaded to the web chat and wait to be sent with a message, in all. One that is not sent within a
    day is deleted."""
    event_streams: Count = 100
    """Pages of the web chat that are connected to one replica at the same time; one more is asked to try again."""
    reply_parts: Count = 20
    """Messages that one reply may be split into; the last says that it was cut."""
    delivery_seconds: Seconds = 600
    """How long a part is tried again before it is marked failed and the chat goes on."""
    unanswered_seconds: Seconds = 1800
    """A message that has waited longer than this turns readiness red: something is stuck."""
    grace_seconds: Seconds = 25
    """On SIGTERM: how long running turns may take to reach a point where they can be taken up again."""
