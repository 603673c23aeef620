"""The outside world of the researcher: a site, a model and a receiver of webhooks, each with a record of its requests.

- `pages` makes the pages of the site, the same for the same seed; `hostile` has those that attack their reader;
- `register` makes another site, with questions about it and their true answers;
- `site` serves them, and misbehaves as the pages say;
- `planner` answers as a model: it speaks the chat completions protocol and decides by rules;
- `receiver` takes webhooks, and is out of order for one of them;
- `record` writes and reads the record of all three. `python -m examples.researcher.world` serves them.
"""
