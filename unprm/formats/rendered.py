"""A model's own chat template, applied to placeholders for a request's texts."""

from collections.abc import Sequence
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING

from unprm.errors import ModelInvalid

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

PROBLEM, SOLUTION = "\ue000", "\ue001"
"""Stand for the texts in a chat; characters that no template has."""
TODAY = date(2025, 6, 24)
"""The day of a template that writes today's date into the chat, so that scores don't change overnight."""


def system_turn(parts: Sequence[str]) -> str:
    """The system message in a template's text before the problem, parted into text and tokens by turns; empty if there
    is none."""
    texts = iter(parts[::2])
    for text in texts:
        if text.startswith("system"):
            return text.removeprefix("system").strip() or next(texts, "").strip()
    return ""


def render(directory: Path, *marks: str) -> tuple[str, frozenset[str], "PreTrainedTokenizerFast"]:
    """The chat template of the model in a directory, with the marks as the messages of user and assistant in turn: the
    text, in which each mark stands once; those around whose text the template strips space; and its tokenizer.

    Raises `ModelInvalid` if there is no template, or it does not repeat each message once.
    """
    # slow to import, and listing the families does without
    from jinja2 import TemplateError
    from transformers import PreTrainedTokenizerFast

    model = PreTrainedTokenizerFast.from_pretrained(directory, local_files_only=True)
    if not model.chat_template:
        raise ModelInvalid(f"{directory} has no chat template, which this family's input is made with")
    roles = ("user", "assistant") * len(marks)
    turns = [{"role": role, "content": f" {mark} "} for role, mark in zip(roles, marks, strict=False)]
    try:
        text = str(model.apply_chat_template(turns, tokenize=False, strftime_now=TODAY.strftime))
    except TemplateError as error:
        raise ModelInvalid(f"{directory}: its chat template takes no problem and solution ({error})") from error
    stripped = frozenset(mark for mark in marks if f" {mark} " not in text)
    for role, mark in zip(roles, marks, strict=False):
        if text.count(mark) != 1:
            raise ModelInvalid(f"{directory}: its chat template does not repeat the {role}'s message once")
        text = text.replace(f" {mark} ", mark)
    return text, stripped, model
