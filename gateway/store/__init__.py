"""The database on SQLite and PostgreSQL: inbox, leases, journal, outbox and everything else that is stored."""
