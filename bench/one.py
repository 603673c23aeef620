"""One repeat of one measurement: `python -m bench.one NAME SIZE STORE WORKERS` prints its figures as JSON."""

import json
import sys
from importlib import import_module

from bench.engines import Setup, engine_of
from bench.figures import Size


def main(name: str, size: str, store: str, workers: str) -> None:
    """Measure once and print the figures."""
    setup = Setup(engine_of(store), int(workers))
    print(json.dumps(import_module(f"bench.measures.{name}").measure(Size(size), setup)))


if __name__ == "__main__":
    main(*sys.argv[1:])
