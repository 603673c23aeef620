"""Which rows a commit speaks of, so that they are locked and read before anything is judged (S-8)."""

from collections import defaultdict
from collections.abc import Iterable

from outlast.core.commit import AppendMessage, Commit, Put, Wake
from outlast.core.rows import EFFECT, KINDS, RUN, Key, Kind

Named = dict[Kind, set[Key]]
BY_NAME = {kind.name: kind for kind in KINDS}


def named(commits: Iterable[Commit], *, optimistic: bool) -> Named:
    """The keys of every row these commits write or expect, by kind.

    `optimistic`: rows that a bulk write checks by itself are left out: insertions, and versions of kinds that only
    a run's holder writes. An effect shared by a tenant has several writers, so it is always read.
    """
    found: defaultdict[str, set[Key]] = defaultdict(set)
    for commit in commits:
        if commit.fence is not None:
            found[RUN.name].add((commit.fence.tenant, commit.fence.run))
        for expect in commit.expects:
            found[expect.kind.name].add(expect.key)
        for write in commit.writes:
            if type(write) is Put:
                kind, row, replaces = write
                if not optimistic or (replaces and (kind.read_first or (kind is EFFECT and row[1] == ""))):
                    found[kind.name].add(row[: kind.key])  # type: ignore[arg-type]
            elif type(write) is AppendMessage:
                found[RUN.name].add(write.message[:2])
            elif type(write) is Wake:
                found[RUN.name].add((write.tenant, write.run))
    return {BY_NAME[name]: keys for name, keys in found.items()}
