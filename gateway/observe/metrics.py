"""Prometheus metrics. Labels come from fixed sets or the config, never from ids or texts."""

from collections import deque
from collections.abc import Callable, Collection
from functools import partial

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from agents.messages import AssistantMessage, ToolResultMessage
from tools.catalog import NAMES
from tools.policy import SERVERS, server_of

TURN_SECONDS = (0.1, 0.3, 1, 3, 10, 30, 100, 300, 600)
LAG_SECONDS = (0.001, 0.01, 0.03, 0.1, 0.3, 1, 3)
ANSWERS_SECONDS, ANSWERS_MAX = 3600.0, 10_000
"""The answers that the quantiles are of: those of the last hour, at most so many."""
QUANTILES = {"p50": 0.5, "p95": 0.95}
LOST_MAX = 1_000
"""Lost messages that are remembered, so that each counts once."""


class Metrics:
    """The metrics of one gateway, in a separate registry."""

    def __init__(self) -> None:
        self.tools: Collection[str] = NAMES
        """The tools that are counted by name."""
        self.servers: Collection[str] = ()
        """The MCP servers of the config."""
        self._answers: deque[tuple[float, float]] = deque(maxlen=ANSWERS_MAX)
        self._lost: deque[int] = deque(maxlen=LOST_MAX)
        self.lost = 0
        registry = self._registry = CollectorRegistry()
        self._make_counters(partial(Counter, registry=registry))
        self._make_gauges(partial(Gauge, registry=registry))
        seconds = partial(Histogram, registry=registry)
        self.turn_seconds = seconds(
            "clawgate_turn_seconds", "From the start of a turn to its last journal write.", buckets=TURN_SECONDS
        )
        self.loop_lag = seconds(
            "clawgate_loop_lag_seconds",
            "How late the event loop comes to what was due, looked at once a second.",
            buckets=LAG_SECONDS,
        )

    def _make_counters(self, counter: Callable[..., Counter]) -> None:
        self.deliveries = counter(
            "clawgate_webhook_deliveries", "Webhook deliveries by outcome.", ["channel", "outcome"]
        )
        """`accepted`, `duplicate`, `answered`, `unavailable`, or `ignored: …`, `rejected: …` with the reason."""
        self.hooks = counter("clawgate_hook_events", "Events of hooks by outcome.", ["hook", "outcome"])
        """`accepted`, `rejected` (no or a wrong proof), `refused` (the request), `too-often`, `unavailable`."""
        why = "Connections ended for what they sent, did not send, or for their number."
        self.refused = counter("clawgate_connections_refused", why, ["reason"])
        refusals = "Messages refused, and turns ended, by a budget or a rate."
        self.refusals = counter("clawgate_refusals", refusals, ["kind"])
        """`agent-budget`, `agent-month-budget`, the same of `chat` and `sender`, `sender-rate` or `chat-rate`."""
        self.turns = counter("clawgate_turns", "Turns by how they ended.", ["agent", "outcome"])
        self._requests = counter("clawgate_model_requests", "Requests to a model that took tokens.", ["model"])
        tokens = "Tokens by kind; input counts neither cache, output includes reasoning."
        self._tokens = counter("clawgate_model_tokens", tokens, ["model", "kind"])
        self._cost = counter("clawgate_model_cost", "At the configured prices, in their currency.", ["model"])
        self.failures = counter("clawgate_turn_failures", "Turns without an answer, by reason.", ["reason"])
        """The kind of a model's error, the limit that was reached, or our own fault."""
        self._tools = counter("clawgate_tool_calls", "Calls of tools by how they ended.", ["tool", "outcome"])
        """`ok` or `failed`; a server's tools count as `mcp:NAME`, and what is in no catalogue as the tool `other`."""
        self.parts = counter("clawgate_reply_parts", "Attempts at reply parts.", ["channel", "outcome"])
        self.ambiguous = counter("clawgate_send_ambiguous", "Attempts that may have arrived.", ["channel"])
        self.dead = counter("clawgate_dead_letters", "Messages and parts given up.", ["kind"])
        """`message` or `part`."""
        lost = "Accepted messages that were given up, or whose reply was, in whole or in part."
        self._lost_total = counter("clawgate_lost", lost)
        self.fenced = counter("clawgate_fenced", "Lanes that lost their chat to another.")
        self.taken_over = counter("clawgate_chats_taken_over", "Chats taken up by a sweep.")
        due = "Runs of what was due without a message, by outcome."
        self.due = counter("clawgate_due_total", due, ["kind", "outcome"])

    def _make_gauges(self, gauge: Callable[..., Gauge]) -> None:
        self.config_refused = gauge(
            "clawgate_config_refused", "1 while the config file cannot be used and an older one holds."
        )
        self.channel_up = gauge(
            "clawgate_channel_up", "1 while a channel's account is in touch with its platform.", ["channel", "account"]
        )
        self.oldest = gauge(
            "clawgate_oldest_unanswered_seconds", "Age of the oldest message that is neither answered nor given up."
        )
        watched = "1 if the newest probe of the self-watch was answered, by account or by model."
        self.watch_up = gauge("clawgate_watch_up", watched, ["account", "model"])
        took = "From a message's acceptance to the last part of its answer, over the last hour."
        self._answer_seconds = gauge("clawgate_answer_seconds", took, ["quantile"])
        self.inbox = gauge("clawgate_inbox_messages", "Messages that wait or are being answered, of all replicas.")
        self.outbox = gauge("clawgate_outbox_parts", "Reply parts that are still to be sent, of all replicas.")

    def count_request(self, answer: AssistantMessage) -> None:
        self._requests.labels(answer.reference).inc()
        for kind in ("input", "cache_read", "cache_write", "output", "reasoning"):
            if tokens := getattr(answer.usage, kind):
                self._tokens.labels(answer.reference, kind).inc(tokens)
        if answer.cost:
            self._cost.labels(answer.reference).inc(answer.cost)

    def count_tool(self, result: ToolResultMessage) -> None:
        server = server_of(result.tool)
        name = result.tool if result.tool in self.tools else SERVERS + server if server in self.servers else "other"
        self._tools.labels(name, "failed" if result.is_error else "ok").inc()

    def answered(self, now: float, seconds: float) -> None:
        """Record how long a person waited for the whole of an answer."""
        self._answers.append((now, seconds))

    def answer_seconds(self, now: float) -> dict[str, float]:
        """Return the median and the 95th percentile of the last hour; empty without an answer in it."""
        recent = sorted(seconds for at, seconds in self._answers if now - at < ANSWERS_SECONDS)
        found = {name: recent[int(share * (len(recent) - 1))] for name, share in QUANTILES.items()} if recent else {}
        self._answer_seconds.clear()
        for name, seconds in found.items():
            self._answer_seconds.labels(str(QUANTILES[name])).set(seconds)
        return found

    def lose(self, turn: int) -> None:
        """Count a message that was given up, or whose reply was; each once."""
        if turn not in self._lost:
            self._lost.append(turn)
            self.lost += 1
            self._lost_total.inc()

    def render(self) -> bytes:
        return generate_latest(self._registry)
