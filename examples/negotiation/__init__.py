"""A purchase, negotiated with real suppliers over HTTP in seven nodes; Outlast's worked example.

In a checkout it is `examples.negotiation`, served by `outlast worker examples.negotiation.workflow`. The modules, in
the order of a run:

- `purchase` the purchase document, `governance` its rules, `kraljic` the kind of buy;
- `placing` looks up the kind of buy, in a `cache` by its key or by `similar` purchases;
- `suppliers` the calls to the suppliers' mailboxes, `inbox` the endpoint for their bids;
- `course` the workflow, `routes` its four ways to negotiate, `workflow` the nodes around them;
- `judging` and `scoring` the best bid and its reasons, `advice` further measures;
- `summary` and `report` the result in words, `report_page` with `charts` as a page;
- `market` simulated suppliers, `record` their recorded requests; `samples` sample purchases;
- `demo` the program of `outlast demo`.
"""
