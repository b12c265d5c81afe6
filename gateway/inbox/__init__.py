"""Messages on their way in: access, routing and acceptance."""
