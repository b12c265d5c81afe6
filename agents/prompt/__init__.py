"""The prompt: system prompt sections, the form of user messages, and fences around untrusted text.

It also parses an answer's directives to the gateway and keeps prompt internals out of replies.
"""
