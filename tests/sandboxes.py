"""One report on this machine's sandbox for a whole process of tests: it is probed in `tests/tools/test_sandbox.py`.

A probe takes a quarter of a second of processor time, and nearly every gateway and every bench of a test would make one.
"""

import time

import pytest

from tools.sandbox.sandbox import ProbeReport, Sandbox

WALLS = ("bubblewrap", pytest.param("bubblewrap without /proc", marks=pytest.mark.long), "Landlock and seccomp")
"""The strongest, and what is left without it. The one between has one test of all attacks; `make test-all` has the rest."""

_probed: list[Sandbox] = []
"""The last one that a test was given, or that has a wall."""


def reported(sandbox: Sandbox) -> Sandbox:
    """Gives it the report that an earlier one came to, if there is any: else it makes its own."""
    if (report := _report()) and sandbox.report is None:
        sandbox.report, sandbox._probed = report, time.monotonic()
    else:
        _probed[:] = [sandbox]
    return sandbox


def shared() -> Sandbox:
    return reported(Sandbox())


def _report() -> ProbeReport | None:
    (report,) = [it.report for it in _probed] or [None]
    return report if report and report.wall else None
