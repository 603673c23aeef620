"""An agent with one tool, served by a worker process that sends its spans to a collector."""

import os

from outlast import activity
from outlast.agent import ChatCompletions, agent_workflow


@activity(key="note/{text}", no_undo="a note stays")  # outlast: ignore[OL101] tests only
async def note(text: str) -> str:
    """Write a note."""
    return f"noted {text}"


MODEL = ChatCompletions("openai:gpt-5", url=os.environ.get("OUTLAST_MODEL_URL", "http://127.0.0.1:9/"))
helper = agent_workflow("helper", tools=[note], model=MODEL)
