"""The prompt: the sections of the system prompt, the form of a user message, and the fences around untrusted text.

It also reads what an answer says to the gateway, and keeps the prompt's own text from leaving it.
"""
