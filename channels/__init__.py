"""Channels: the vocabulary of messages, the port of a platform, and what platforms share.

One folder for each platform. What a channel may do besides receiving and sending is a small Protocol in `abilities`.
"""
