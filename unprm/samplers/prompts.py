"""The prompts of sampling models, and the base of the samplers that take them as token ids.

Chat models get their template around an instruction and the problem, after worked examples if asked; others, such as
`unprm-mini`, the problem and a line break.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from tokenizers import Tokenizer
from transformers import PreTrainedTokenizerFast

from unprm.checkpoints.files import read_tokenizer
from unprm.errors import ModelInvalid
from unprm.formats.pieces import plain
from unprm.types import Completion, Sampler, SamplingSettings

INSTRUCTION = (
    "Solve the problem below. Write one step of the reasoning per line, each beginning with its number in the form "
    "'Step 1:', 'Step 2:' and so on. End the last step with the final answer as \\boxed{answer}."
)
WORKED_EXAMPLES = (
    (
        "The length of a rectangle is 3 more than twice its width, and its perimeter is 36. What is its area?",
        "Step 1: Let $w$ be the width. Then the length is $2w + 3$.\n"
        "Step 2: The perimeter is $2(w + 2w + 3) = 6w + 6$. From $6w + 6 = 36$ follows $w = 5$.\n"
        "Step 3: The length is $2 \\cdot 5 + 3 = 13$.\n"
        "Step 4: The area is $5 \\cdot 13 = 65$. The final answer is \\boxed{65}.",
    ),
    (
        "How many two-digit numbers are divisible by 6, but not by 9?",
        "Step 1: The two-digit numbers divisible by 6 are $6 \\cdot 2$ to $6 \\cdot 16$, which makes 15.\n"
        "Step 2: A number that is divisible by 6 and by 9 is divisible by 18, and the other way round.\n"
        "Step 3: The two-digit numbers divisible by 18 are 18, 36, 54, 72 and 90, which makes 5.\n"
        "Step 4: So $15 - 5 = 10$ numbers are left. The final answer is \\boxed{10}.",
    ),
)
"""Problems, each with its solution in the form that the instruction asks for."""
_PLACE = "<<<the problem stands here>>>"
ENDING = "\n"
"""What ends a problem for a model without a chat template."""


def messages(problem: str, worked_examples: bool = False) -> list[dict[str, str]]:
    """The messages that ask a chat model to solve a problem; worked examples, if any, are earlier turns of the chat."""
    turns = []
    for example, solution in WORKED_EXAMPLES if worked_examples else ():
        turns += [_asking(example), {"role": "assistant", "content": solution}]
    return [*turns, _asking(problem)]


def _asking(problem: str) -> dict[str, str]:
    return {"role": "user", "content": f"{INSTRUCTION}\n\n{problem}"}


@dataclass(frozen=True, slots=True)
class Prompter:
    """Encodes problems for a model: ids `before` and `after` the problem, and the text `ending` put to it."""

    before: tuple[int, ...]
    after: tuple[int, ...]
    ending: str
    tokenizer: Tokenizer

    @classmethod
    def load(cls, directory: Path, worked_examples: bool = False) -> Self:
        """The prompter of a directory's model. Raises `ModelInvalid` for a template that changes the problem."""
        tokenizer = read_tokenizer(directory)
        backend: Tokenizer = tokenizer.backend_tokenizer
        if not tokenizer.chat_template:
            return cls((), (), ENDING, plain(backend))
        parts = _around(tokenizer, messages(_PLACE, worked_examples), directory)
        before, after = (tuple(backend.encode(part, add_special_tokens=False).ids) for part in parts)
        return cls(before, after, "", plain(backend))

    def encode(self, problem: str) -> tuple[int, ...]:
        """Token ids of a prompt. The problem is encoded apart, so that nothing in it is a special token."""
        ids = self.tokenizer.encode(problem + self.ending, add_special_tokens=False).ids
        return (*self.before, *ids, *self.after)

    def decode(self, ids: Sequence[int]) -> str:
        text: str = self.tokenizer.decode(list(ids), skip_special_tokens=True)
        return text


def around_problem(directory: Path) -> tuple[str, str]:
    """The texts before and after a problem that is the user's whole message; errors as for `Prompter.load`."""
    tokenizer = read_tokenizer(directory)
    if not tokenizer.chat_template:
        return "", ENDING
    return _around(tokenizer, [{"role": "user", "content": _PLACE}], directory)


def _around(tokenizer: PreTrainedTokenizerFast, chat: list[dict[str, str]], directory: Path) -> tuple[str, str]:
    text = str(tokenizer.apply_chat_template(chat, add_generation_prompt=True, tokenize=False))
    before, found, after = text.partition(_PLACE)
    if not found:
        raise ModelInvalid(f"{directory}: its chat template does not repeat the user's message")
    return before, after


def end_tokens(directory: Path) -> tuple[int, ...]:
    """The ids that end a completion, by `generation_config.json` or `config.json`, else raises `ModelInvalid`."""
    for name in ("generation_config.json", "config.json"):
        path = directory / name
        named = json.loads(path.read_text("utf-8")).get("eos_token_id") if path.is_file() else None
        if named is not None:
            return tuple(named) if isinstance(named, list) else (named,)
    raise ModelInvalid(f"{directory} names no end-of-text token (eos_token_id)")


class TokenSampler(Sampler):
    """A sampler of the model `name`, with the tokenizer in `directory`. Raises as `Prompter.load`."""

    neutral: Mapping[str, float] = {}

    def __init__(self, directory: Path, name: str, settings: SamplingSettings) -> None:
        self.model, self._settings = name, settings
        self._prompter = Prompter.load(directory, settings.worked_examples)

    def prompt(self, problem: str) -> tuple[int, ...]:
        return self._prompter.encode(problem)

    def decode(self, ids: Sequence[int]) -> str:
        return self._prompter.decode(ids)

    async def solve(self, problem: str, count: int, seed: int) -> list[Completion]:
        return await self.complete(self.prompt(problem), count, seed, affinity=problem)
