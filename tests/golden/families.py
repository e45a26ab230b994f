"""The input of each published PRM family, on a tokenizer of the kind that it has."""

from pathlib import Path

from tests import checkpoints
from tests.golden.kept import pretty
from unprm.checkpoints.files import load_tokenizer
from unprm.formats.registry import family_named


def inputs(place: Path) -> dict[str, str]:
    """Text, token ids and positions of one solution, a file for each family."""
    made = {}
    for name in checkpoints.PUBLISHED:
        directory = checkpoints.write(name, place / name)
        form = family_named(name).build(load_tokenizer(directory), directory)
        encoded = form.encode(checkpoints.PROBLEM, checkpoints.STEPS)
        fields = {"text": form.text(encoded), "token_ids": encoded.ids, "positions": encoded.positions}
        made[f"{name}.json"] = pretty(fields) + "\n"
    return made
