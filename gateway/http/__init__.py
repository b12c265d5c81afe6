"""The HTTP server: webhooks, health, and the limits that hold before anything is read."""
