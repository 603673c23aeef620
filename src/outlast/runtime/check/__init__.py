"""The deploy gate: which runs in flight the code that is about to be deployed would not carry on (TEST-3, RUN-8)."""

from outlast.runtime.check.gate import Checked, Verdict, check

__all__ = ["Checked", "Verdict", "check"]
