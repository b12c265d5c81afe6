"""Answers for the operator: the doctor, a config's report, routes, sessions, contacts."""
