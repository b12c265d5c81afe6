"""Replies on their way out: what is sent of an ending, and the sending itself, each part once."""
