"""Telegram: webhooks or polling in, messages with entities out."""
