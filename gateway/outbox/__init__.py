"""Outgoing replies: what a turn's ending sends, and delivery of each part exactly once."""
