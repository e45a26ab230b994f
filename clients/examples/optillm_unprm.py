"""A plugin for OptiLLM: of several candidates, the one that a vote of the server elects.

pip install -e . optillm
mkdir -p optillm/plugins && cp clients/examples/optillm_unprm.py optillm/plugins/
OPENAI_API_KEY=none optillm --base-url http://gpu-1:8000/v1 --approach unprm --port 8080

A request may set `unprm_strategy` and `unprm_candidates`.
"""

from collections.abc import Mapping
from functools import cache
from typing import Any

from openai import OpenAI

from unprm_client import Client
from unprm_client.errors import NoAnswer

SLUG = "unprm"
"""The plugin's name: the `--approach`, or before the model's name, as in `unprm-Qwen/Qwen2.5-Math-7B-Instruct`."""
_server = cache(Client)
CANDIDATES = 8
PASSED_ON = ("temperature", "top_p", "max_tokens", "stop")
"""Fields of a request that its candidates are sampled with."""


def run(
    system_prompt: str,
    initial_query: str,
    client: OpenAI,
    model: str,
    request_config: Mapping[str, Any] | None = None,
) -> tuple[str, int]:
    """The elected candidate, the first if none can be elected, and the number of tokens of all."""
    config = request_config or {}
    problem = initial_query.removeprefix("User: ")  # OptiLLM puts the role before each message
    messages: list[Any] = [{"role": "user", "content": problem}]
    if system_prompt:
        messages.insert(0, {"role": "system", "content": system_prompt})
    options = {name: config[name] for name in PASSED_ON if name in config}
    missing, texts, tokens = config.get("unprm_candidates", CANDIDATES), list[str](), 0
    while missing > 0:  # some servers give one candidate at a time, whatever `n` is
        answer = client.chat.completions.create(model=model, messages=messages, n=missing, **options)
        texts += [choice.message.content or "" for choice in answer.choices]
        tokens += answer.usage.completion_tokens if answer.usage else 0
        missing -= max(1, len(answer.choices))
    try:
        elected = _server().vote(problem, texts, config.get("unprm_strategy"))
    except NoAnswer:
        return texts[0], tokens
    return texts[elected.solution_index], tokens
