"""docs/votes.ipynb runs from top to bottom on a CPU, and has no outputs in it."""

import json
from pathlib import Path
from typing import Any

import matplotlib

NOTEBOOK = Path(__file__).parents[1] / "docs" / "votes.ipynb"


def test_the_notebook_draws_curves_of_votes() -> None:
    matplotlib.use("Agg")
    cells = [cell for cell in json.loads(NOTEBOOK.read_text("utf-8"))["cells"] if cell["cell_type"] == "code"]
    assert not any(cell["outputs"] for cell in cells)
    names: dict[str, Any] = {"__name__": "__main__"}
    for cell in cells:
        exec(compile("".join(cell["source"]), str(NOTEBOOK), "exec"), names)
    accuracy = names["accuracy"]
    assert [line.get_label() for line in names["axes"].lines] == list(accuracy)
    assert all(len(shares) == len(names["SIZES"]) for shares in accuracy.values())
    alone = accuracy["majority"][0]
    assert alone == accuracy["prm"][0] == accuracy["wrf"][0]  # of a single candidate
    assert all(alone < accuracy[vote][-1] <= accuracy["pass@n"][-1] for vote in names["VOTES"])
    assert accuracy["wrf"][-1] > accuracy["majority"][-1]
