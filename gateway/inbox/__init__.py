"""Messages on their way in: whom the gateway listens to, and what becomes of what arrives."""
