"""Inbound messages: access, routing and acceptance."""
