"""Approvals: calls that a person must allow before they run, the approvers, and their decisions.

`gate` checks the calls of a turn, `approvals` keeps the requests and brings their outcome back into the conversation,
`surfaces` are the chats where a request is posted, `display` is the text that an approver reads. The commands are in
`gateway.commands.approve`, the rows in `gateway.store.approvals`.
"""
