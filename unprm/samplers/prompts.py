"""What a sampling model is asked.

Chat models get their own chat template around one instruction and the problem; models without a template,
such as `unprm-mini`, get the problem and a line break.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from tokenizers import Tokenizer

from unprm.engines.checkpoint import read_tokenizer
from unprm.errors import ModelInvalid
from unprm.formats.pieces import plain

INSTRUCTION = (
    "Solve the problem below. Write one step of the reasoning per line, each beginning with its number in the form "
    "'Step 1:', 'Step 2:' and so on. End the last step with the final answer as \\boxed{answer}."
)
_PLACE = "<<<the problem stands here>>>"


@dataclass(frozen=True, slots=True)
class Prompter:
    """Encodes problems for one model: what stands before and after a problem, what is written right behind it,
    and a tokenizer for its text."""

    before: tuple[int, ...]
    after: tuple[int, ...]
    ending: str
    tokenizer: Tokenizer

    @classmethod
    def load(cls, directory: Path) -> Self:
        """The prompter for the model in a directory.

        Raises `ModelInvalid` if it has no usable tokenizer, or a chat template that changes the problem.
        """
        tokenizer = read_tokenizer(directory)
        backend: Tokenizer = tokenizer.backend_tokenizer
        if not tokenizer.chat_template:
            return cls((), (), "\n", plain(backend))
        message = {"role": "user", "content": f"{INSTRUCTION}\n\n{_PLACE}"}
        text = tokenizer.apply_chat_template([message], add_generation_prompt=True, tokenize=False)
        head, found, tail = text.partition(_PLACE)
        if not found:
            raise ModelInvalid(f"{directory}: its chat template does not repeat the user's message")
        before, after = (tuple(backend.encode(part, add_special_tokens=False).ids) for part in (head, tail))
        return cls(before, after, "", plain(backend))

    def encode(self, problem: str) -> tuple[int, ...]:
        """Token ids that ask for a solution. The problem is encoded on its own, so that nothing in it can pass
        for a special token of the template."""
        ids = self.tokenizer.encode(problem + self.ending, add_special_tokens=False).ids
        return (*self.before, *ids, *self.after)

    def decode(self, ids: Sequence[int]) -> str:
        """The text of token ids, without special tokens."""
        text: str = self.tokenizer.decode(list(ids), skip_special_tokens=True)
        return text


def end_tokens(directory: Path) -> tuple[int, ...]:
    """The ids that end a completion: those of `generation_config.json`, else of `config.json`.

    Raises `ModelInvalid` if neither names one.
    """
    for name in ("generation_config.json", "config.json"):
        path = directory / name
        named = json.loads(path.read_text("utf-8")).get("eos_token_id") if path.is_file() else None
        if named is not None:
            return tuple(named) if isinstance(named, list) else (named,)
    raise ModelInvalid(f"{directory} names no end-of-text token (eos_token_id)")
