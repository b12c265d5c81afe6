"""Commands: what people write to the gateway instead of to an agent, such as `/stop`.

A command runs in the control session beside its conversation, so it never waits behind a turn, and needs no model. Each is
a record in the table of `catalog`, and the functions lie by kind: `conversation`, `settings`, `report`.
"""
