"""Approvals: tool calls that a person must allow before they run, the approvers, and their decisions.

`gate` checks the calls of a turn, `approvals` stores the requests and returns their outcome to the conversation,
`notices` finds the chats where a request is posted, `display` renders the text that an approver reads. The commands are
in `gateway.commands.approve`, the rows in `gateway.store.approvals`.
"""
