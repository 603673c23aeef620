"""Sales inquiries from intake to follow-up, in two planes: nodes that decide, and nodes that act on decisions.

- `inquiry`: the input, the state and the outcome; `decisions`: the questions to the model and the rules.
- `systems`: the activities on CRM, calendar, mail and messenger; `policy`: what is refused, and what needs a person.
- `workflow`: the eleven steps.
- `office`: the outside systems and a scripted model as an HTTP server with a record.
- `demo`: `outlast demo --sample acquisition`.
"""
