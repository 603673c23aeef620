"""Runs that a Temporal cluster schedules, while ledger, approvals, checkpoints and results stay in Outlast's store.

Needs an extra: `pip install 'outlast[temporal]'`.
"""

from outlast.errors import to_install

try:
    from outlast.temporal.cluster import connect
    from outlast.temporal.runtime import TemporalRuntime
    from outlast.temporal.temporal_guest import TemporalGuest
except ModuleNotFoundError as error:
    if not (error.name or "").startswith("temporalio"):
        raise
    raise ImportError(f"outlast.temporal needs temporalio: {to_install('temporal')}") from error

__all__ = ["TemporalGuest", "TemporalRuntime", "connect"]
