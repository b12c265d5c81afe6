"""Turns without an inbound message: schedules, and the watch that starts what is due."""
