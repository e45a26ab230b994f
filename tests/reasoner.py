"""The embedded reasoner behind OpenAI's API, for a gateway, a search or a sampler if there is no larger model.

python -m tests.reasoner --port 8001
"""

from collections.abc import Sequence
from itertools import count as counting
from typing import Annotated, Any

import typer
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from unprm import mini
from unprm.samplers.load import load_sampler
from unprm.types import Completion, Sampler, SamplingSettings

TEMPERATURE = 0.8
"""Used whatever a request says, as the embedded model was measured with it."""


class Reasoner:
    """Completes the last user message, or an assistant message after it that has begun the solution."""

    def __init__(self, sampler: Sampler) -> None:
        self._sampler = sampler
        self._seeds = counting(10**6, 1000)

    async def complete(self, request: Request) -> Response:
        """Returns `n` completions, cut at the first stop string, which `stop_reason` names, as in vLLM."""
        body = await request.json()
        contents = [message["content"] for message in body["messages"] if message["role"] != "system"]
        begun = body["messages"][-1]["role"] == "assistant"
        text = "\n".join(contents[-2:]).removesuffix("\n") if begun else contents[-1]
        completions = await self._write(body, self._sampler.prompt(text))
        choices, tokens = [], 0
        for index, completion in enumerate(completions):
            kept, stop, taken = self._cut(completion, body.get("stop") or [])
            tokens += taken
            message = {"role": "assistant", "content": kept}
            reason = "stop" if completion.finished or stop is not None else "length"
            choices.append({"index": index, "message": message, "finish_reason": reason, "stop_reason": stop})
        usage = {"prompt_tokens": 0, "completion_tokens": tokens, "total_tokens": tokens}
        common = {"id": "x", "object": "chat.completion", "created": 0, "model": mini.NAME}
        return JSONResponse(common | {"choices": choices, "usage": usage})

    async def go_on(self, request: Request) -> Response:
        """Returns `n` completions of a prompt's token ids, with token ids and log-probabilities, as in vLLM."""
        body = await request.json()
        choices = [
            {
                "index": index,
                "text": completion.text,
                "finish_reason": "stop" if completion.finished else "length",
                "token_ids": completion.ids,
                "logprobs": {"token_logprobs": completion.logprobs},
            }
            for index, completion in enumerate(await self._write(body, body["prompt"]))
        ]
        common = {"id": "x", "object": "text_completion", "created": 0, "model": mini.NAME}
        return JSONResponse(common | {"choices": choices})

    async def models(self, request: Request) -> Response:
        """Lists the only model."""
        card = {"id": mini.NAME, "object": "model", "created": 0, "owned_by": "unprm"}
        return JSONResponse({"object": "list", "data": [card]})

    async def _write(self, body: dict[str, Any], prompt: Sequence[int]) -> list[Completion]:
        seed = body["seed"] if isinstance(body.get("seed"), int) else next(self._seeds)
        return await self._sampler.complete(prompt, body.get("n", 1), seed, "")

    def _cut(self, completion: Completion, stops: list[str]) -> tuple[str, str | None, int]:
        """The text before the first stop string, that string, and the number of tokens up to its end."""
        places = [(place, stop) for stop in stops if (place := completion.text.find(stop)) >= 0]
        if not places:
            return completion.text, None, len(completion.ids)
        place, stop = min(places)
        ids, end = completion.ids, place + len(stop)
        taken = next(k for k in range(len(ids) + 1) if len(self._sampler.decode(ids[:k])) >= end)
        return completion.text[:place], stop, taken


async def healthy(request: Request) -> Response:
    """Responds as soon as the server listens."""
    return JSONResponse({})


def main(host: str = "127.0.0.1", port: Annotated[int, typer.Option(min=0)] = 8001) -> None:
    """Serves until terminated by a signal."""
    sampler = load_sampler("transformers", mini.NAME, SamplingSettings(TEMPERATURE, max_tokens=256))
    reasoner = Reasoner(sampler)
    routes: list[Any] = [
        Route("/v1/chat/completions", reasoner.complete, methods=["POST"]),
        Route("/v1/completions", reasoner.go_on, methods=["POST"]),
        Route("/v1/models", reasoner.models),
        Route("/health", healthy),
    ]
    uvicorn.run(Starlette(routes=routes), host=host, port=port, log_level="error")


if __name__ == "__main__":
    typer.run(main)
