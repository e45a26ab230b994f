"""Writes docker/helm/README.md, a table of the chart's values, from what values.yaml says of them:

python docker/values.py
"""

import re
from pathlib import Path

FOLDER = Path(__file__).parent / "helm"
_LINE = re.compile(r"(?P<indent> *)(# ?(?P<comment>.*)|(?P<name>\w+):(?P<value>.*))")


def table(values: str) -> str:
    """The table, with a row for each value that has a default."""
    rows, path, said = list[str](), list[str](), list[str]()
    for line in map(_LINE.fullmatch, values.splitlines()):
        if line is None:
            continue
        if line["name"] is None:
            said.append(line["comment"])
            continue
        path[len(line["indent"]) // 2 :] = [line["name"]]
        about = " ".join(said).replace("|", "\\|")
        value = line["value"].strip()
        rows.append(f"| `{'.'.join(path)}` | {f'`{value}`' if value else ''} | {about} |")
        said.clear()
    return "\n".join(["# Values of the chart", "", "| value | default | |", "|---|---|---|", *rows, ""])


if __name__ == "__main__":
    (FOLDER / "README.md").write_text(table((FOLDER / "values.yaml").read_text("utf-8")), "utf-8")
