"""Names and records that every room reads: a session's name, the inbox's message, a program's call."""
