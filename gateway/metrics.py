"""What is counted, for Prometheus. Labels are few and from fixed sets: never an id, never a text."""

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from agents.messages import Usage

TURN_SECONDS = (0.1, 0.3, 1, 3, 10, 30, 100, 300, 600)


class Metrics:
    """One registry per gateway, so that two of them in one process do not mix."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        self._deliveries = Counter(
            "clawgate_webhook_deliveries",
            "Webhook deliveries by what became of them.",
            ["channel", "outcome"],
            registry=self._registry,
        )
        self._refused = Counter(
            "clawgate_connections_refused",
            "Connections ended for what they sent, did not send, or for their number.",
            ["reason"],
            registry=self._registry,
        )
        self._turns = Counter(
            "clawgate_turns", "Turns by how they ended.", ["agent", "outcome"], registry=self._registry
        )
        self._turn_seconds = Histogram(
            "clawgate_turn_seconds",
            "From the start of a turn to its last journal write.",
            buckets=TURN_SECONDS,
            registry=self._registry,
        )
        self._requests = Counter(
            "clawgate_model_requests", "Requests to a model that took tokens.", ["model"], registry=self._registry
        )
        self._tokens = Counter(
            "clawgate_model_tokens",
            "Tokens by kind; input counts neither cache, output includes reasoning.",
            ["model", "kind"],
            registry=self._registry,
        )
        self._cost = Counter(
            "clawgate_model_cost", "At the configured prices, in their currency.", ["model"], registry=self._registry
        )
        self._parts = Counter(
            "clawgate_reply_parts", "Attempts at reply parts.", ["channel", "outcome"], registry=self._registry
        )

        self._ambiguous = Counter(
            "clawgate_send_ambiguous", "Attempts that may have arrived.", ["channel"], registry=self._registry
        )
        self._dead = Counter("clawgate_dead_letters", "Messages and parts given up.", ["kind"], registry=self._registry)
        self._fenced = Counter("clawgate_fenced", "Lanes that lost their chat to another.", registry=self._registry)
        self._taken_over = Counter("clawgate_chats_taken_over", "Chats taken up by a sweep.", registry=self._registry)
        self._oldest = Gauge(
            "clawgate_oldest_unanswered_seconds",
            "Age of the oldest message that is neither answered nor given up.",
            registry=self._registry,
        )

    def delivery(self, channel: str, outcome: str) -> None:
        """`accepted`, `duplicate`, `answered`, `unavailable`, or `ignored: …`, `rejected: …` with the reason."""
        self._deliveries.labels(channel, outcome).inc()

    def refused(self, reason: str) -> None:
        self._refused.labels(reason).inc()

    def turn(self, agent: str, outcome: str, seconds: float) -> None:
        self._turns.labels(agent, outcome).inc()
        self._turn_seconds.observe(seconds)

    def spent(self, model: str, usage: Usage, cost: float | None) -> None:
        """One request to a model."""
        self._requests.labels(model).inc()
        for kind in ("input", "cache_read", "cache_write", "output", "reasoning"):
            if tokens := getattr(usage, kind):
                self._tokens.labels(model, kind).inc(tokens)
        if cost:
            self._cost.labels(model).inc(cost)

    def part(self, channel: str, outcome: str) -> None:
        self._parts.labels(channel, outcome).inc()

    def ambiguous(self, channel: str) -> None:
        self._ambiguous.labels(channel).inc()

    def dead(self, kind: str) -> None:
        """`message` or `part`."""
        self._dead.labels(kind).inc()

    def fenced(self) -> None:
        self._fenced.inc()

    def taken_over(self, count: int) -> None:
        self._taken_over.inc(count)

    def oldest(self, seconds: float) -> None:
        self._oldest.set(seconds)

    def render(self) -> bytes:
        return generate_latest(self._registry)
