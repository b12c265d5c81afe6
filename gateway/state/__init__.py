"""The state that the parts of a running gateway share: runtime, setup, queues, choices, owners."""
