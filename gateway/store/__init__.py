"""The database: inbox, leases, journal, outbox and all that is kept, on SQLite and PostgreSQL."""
