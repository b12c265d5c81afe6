"""Approvals: what a person must allow before it runs, who is asked, and what becomes of the answer.

`gate` stands before the calls of a turn, `approvals` keeps the requests and brings their outcome back into the conversation,
`surfaces` are the chats where a request is put, `display` is what a person reads before he decides. The commands are in
`gateway.commands.approve`, the rows in `gateway.store.approvals`.
"""
