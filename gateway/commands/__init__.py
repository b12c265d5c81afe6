"""Commands: messages to the gateway instead of to an agent, such as `/stop`.

A command runs in the control session of its conversation, so it never waits for a turn, and needs no model. Each is a
record in the table of `catalog`; the functions are grouped by kind: `conversation`, `settings`, `report`.
"""
