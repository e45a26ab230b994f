"""A model's chat template, applied to a problem and a solution."""

from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from unprm.errors import ModelInvalid

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

PROBLEM, SOLUTION = "\ue000", "\ue001"
"""Stand for the texts in a chat; characters that no template has."""


class Rendered(NamedTuple):
    """A chat's text, in which `PROBLEM` and `SOLUTION` stand once each, with a space on both sides unless the template
    strips it; and the tokenizer that has the template."""

    text: str
    model: "PreTrainedTokenizerFast"


def render(directory: Path) -> Rendered:
    """The chat template of the model in a directory, with the problem as the user's turn and the solution as the
    assistant's. Raises `ModelInvalid` if there is none, or it does not repeat both."""
    # slow to import, and listing the families does without
    from jinja2 import TemplateError
    from transformers import PreTrainedTokenizerFast

    model = PreTrainedTokenizerFast.from_pretrained(directory, local_files_only=True)
    if not model.chat_template:
        raise ModelInvalid(f"{directory} has no chat template, which this family's input is made with")
    turns = [{"role": "user", "content": f" {PROBLEM} "}, {"role": "assistant", "content": f" {SOLUTION} "}]
    try:
        text = str(model.apply_chat_template(turns, tokenize=False))
    except TemplateError as error:
        raise ModelInvalid(f"{directory}: its chat template takes no problem and solution ({error})") from error
    for mark, role in ((PROBLEM, "user"), (SOLUTION, "assistant")):
        if text.count(mark) != 1:
            raise ModelInvalid(f"{directory}: its chat template does not repeat the {role}'s message once")
    return Rendered(text, model)
