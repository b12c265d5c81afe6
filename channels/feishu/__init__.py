"""Feishu: signed webhooks or a long connection in, posts and cards out."""
