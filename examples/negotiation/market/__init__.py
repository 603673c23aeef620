"""Simulated suppliers: a separate HTTP process with declared behaviour and a record of all requests.

`python -m examples.negotiation.market --record market.jsonl --scenario demo` prints `{"url": …}` when it is ready.
"""
