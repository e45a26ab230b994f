"""What a request takes of the server's memory while it waits for the model: `python -m benchmarks.request_memory`
prints the table of docs/lab/benchmarks.md. Linux only."""

import json
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import typer

from benchmarks import servers
from unprm import mini
from unprm.checkpoints.files import load_tokenizer

SHAPES = ((1, 10, 8), (8, 10, 8), (64, 10, 8), (64, 30, 8), (64, 10, 24), (256, 10, 8))
"""Candidates of a request, steps of each, words of a step."""
AT_ONCE = 17
"""Requests at a time; what the model's batches take is the same for one, and no part of the figure."""
SECONDS = 20
"""Until the requests that still wait are given up: by then all have come to the queue."""


def rows() -> Iterator[str]:
    """The table, in Markdown, a line as it comes."""
    tokenizer = load_tokenizer(mini.BASE)
    yield "| candidates | steps of each | tokens | body | memory |"
    yield "|--:|--:|--:|--:|--:|"
    for candidates, steps, words in SHAPES:
        requests = [_request(number, candidates, steps, words) for number in range(AT_ONCE + 1)]
        body, texts = json.dumps(requests[0]), [step for solution in requests[0]["solutions"] for step in solution]
        tokens = sum(len(encoded.ids) for encoded in tokenizer.encode_batch(texts))
        with servers.unprm("--prefix-cache-gb=0", "--max-queued-tokens=100000000") as (url, process):
            alone = _peak(process.pid, url, requests[:1])
            together = _peak(process.pid, url, requests[1:])
        taken = (together - alone) / (AT_ONCE - 1)
        yield f"| {candidates} | {steps} | {tokens:,} | {len(body) / 1e3:,.0f} kB | {taken / 1e6:.2f} MB |"


def _request(number: int, candidates: int, steps: int, words: int) -> dict[str, Any]:
    """Solutions that no other request has."""
    solutions = [
        [" ".join(f"{solution + step + word}" for word in range(words)) for step in range(steps)]
        for solution in range(candidates)
    ]
    return {"problem": f"Problem {number}?", "solutions": solutions}


def _peak(pid: int, url: str, requests: Sequence[dict[str, Any]]) -> int:
    """The most bytes that a process has in memory while all requests wait."""
    process = Path(f"/proc/{pid}")
    (process / "clear_refs").write_text("5")  # the peak begins anew

    def ask(request: dict[str, Any]) -> httpx.Response:
        return httpx.post(f"{url}/score_steps", json=request, headers={"X-Request-Timeout": str(SECONDS)}, timeout=600)

    with ThreadPoolExecutor(len(requests)) as pool:
        statuses = {response.status_code for response in pool.map(ask, requests)}
    assert statuses <= {200, 504}, statuses
    (kib,) = (line.split()[1] for line in (process / "status").read_text().splitlines() if line.startswith("VmHWM:"))
    return int(kib) * 1024


def main() -> None:
    """Prints what a request takes of the server's memory while it waits."""
    for line in rows():
        print(line, flush=True)


if __name__ == "__main__":
    typer.run(main)
