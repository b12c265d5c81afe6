"""Turns without a message: schedules, and the watch that begins what is due."""
