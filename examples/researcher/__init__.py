"""A researcher that works for a long time and survives any crash: README.md is its first page.

In a checkout the package is `examples.researcher`; start it with `outlast worker examples.researcher.workflow`. The
modules, in reading order:

- `records` has the input, the state and the records; `workflow` has the nodes: survey, plan, collect;
- `planning` asks a model, and decides what of its answer is done;
- `robots` reads the rules of a site; `fetching` reads its pages, and `extract` takes typed records from them;
- `answering` answers questions about a site with a model, and `claims` says which answers its records support;
- `watch` shows the progress, `chart` the records, both from what the service answers;
- `world` is the outside: a site, a model and a receiver of webhooks; `demo` and `proof` play for `outlast demo`.
"""
