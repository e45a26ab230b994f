"""A model's own chat template, applied to a request's texts, or to placeholders for them."""

from collections.abc import Sequence
from datetime import date
from itertools import cycle
from pathlib import Path
from typing import TYPE_CHECKING

from unprm.errors import ModelInvalid

if TYPE_CHECKING:
    pass

PROBLEM, SOLUTION = "\ue000", "\ue001"
"""Stand for the texts in a chat; characters that no template has."""
TODAY = date(2025, 6, 24)
"""The day of a template that writes today's date into the chat, so that scores don't change overnight."""


def system_turn(parts: Sequence[str]) -> str:
    """The system message in a template's text before the problem, text and tokens by turns; empty if none."""
    texts = iter(parts[::2])
    for text in texts:
        if text.startswith("system"):
            return text.removeprefix("system").strip() or next(texts, "").strip()
    return ""


class ChatTemplate:
    """The chat template of the model in a directory. Raises `ModelInvalid` if there is none."""

    def __init__(self, directory: Path) -> None:
        # slow to import, and listing the families does without
        from transformers import PreTrainedTokenizerFast

        self.tokenizer: PreTrainedTokenizerFast = PreTrainedTokenizerFast.from_pretrained(
            directory, local_files_only=True
        )
        self._directory = directory
        if not self.tokenizer.chat_template:
            raise ModelInvalid(f"{directory} has no chat template, which this family's input is made with")

    def __call__(self, *messages: str) -> str:
        """The chat with these messages, of user and assistant in turn."""
        roles = cycle(("user", "assistant"))
        turns = [{"role": role, "content": text} for role, text in zip(roles, messages, strict=False)]
        return str(self.tokenizer.apply_chat_template(turns, tokenize=False, strftime_now=TODAY.strftime))

    def around(self, *marks: str) -> tuple[str, frozenset[str]]:
        """The chat with these marks as messages, and those whose space is stripped. Raises `ModelInvalid` unless each
        stands once."""
        from jinja2 import TemplateError

        try:
            text = self(*(f" {mark} " for mark in marks))
        except TemplateError as error:
            message = f"{self._directory}: its chat template takes no problem and solution ({error})"
            raise ModelInvalid(message) from error
        stripped = frozenset(mark for mark in marks if f" {mark} " not in text)
        for role, mark in zip(cycle(("user", "assistant")), marks, strict=False):
            if text.count(mark) != 1:
                raise ModelInvalid(f"{self._directory}: its chat template does not repeat the {role}'s message once")
            text = text.replace(f" {mark} ", mark)
        return text, stripped
