"""The published PRMs that the server supports, as a table: `unprm models`."""

from rich import box
from rich.console import Console
from rich.table import Table

from unprm.formats.family import LikelihoodRatio
from unprm.formats.registry import families, known_models

BYTES = 2
"""Bytes of a parameter in bfloat16."""
WIDTH = 118
"""Least width of the table; if it were narrower, names would be broken and could not be copied."""


def show() -> None:
    """Prints the table of models and a table of their families."""
    table = Table(box=box.SIMPLE, caption=_CAPTION, caption_justify="left")
    for name in ("model on the hub", "family", "licence"):
        table.add_column(name, no_wrap=name != "licence")
    for name in ("size", "bf16", "F1"):
        table.add_column(name, justify="right", no_wrap=True)
    for family, model in known_models():
        copies = 2 if family.readout is LikelihoodRatio else 1
        memory = f"{copies * BYTES * model.parameters:.1f} GB"
        score = "–" if model.f1 is None else f"{model.f1:.1f}"
        table.add_row(model.name, family.name, model.licence, f"{model.parameters:g} B", memory, score)
    kinds = Table("family", "what it is", "reward by its authors", box=box.SIMPLE)
    for family in families().values():
        kinds.add_row(family.name, family.about, family.aggregate)
    Console(width=max(WIDTH, Console().width)).print(table, kinds)


_CAPTION = """\
size: parameters. bf16: memory for the weights; a batch takes a few GB more. eurus takes two models.
F1: average over ProcessBench's four subsets, in percent, as the paper reports it.

Family unprm: what `unprm train` makes of any causal language model. For UnPRM40K on
Qwen2.5-Math-7B-Instruct (7.6 B, 15.2 GB) the paper reports 40.3. unprm-mini is of this family."""
