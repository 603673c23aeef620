"""An agent that works an incident: a model proposes, policy and people decide, and the ledger keeps every call.

- `tools`: the lookups and activities that a model may propose; `policy`: which of them wait for a person, and when they
  are refused; `workflow`: the agent; `stand_in`: a model by rules, which decides from results; `model`: that one or the
  configured one.
- `office`: the ticket system, mail, service platform and bank as an HTTP server with a record.
- `demo`: `outlast demo --sample desk`.
"""
