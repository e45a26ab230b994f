"""A load test: ever more clients, each of which sends its next request when its last is answered.

unprm bench http http://127.0.0.1:8000
"""

import asyncio
import random
import time
from collections import Counter
from math import ceil
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from unprm.commands import group
from unprm_client import _base
from unprm_client._client import AsyncClient
from unprm_client.errors import ClientError

app = group("Measures a server.")

SOLUTIONS = 8
"""Of a request."""
GAIN = 1.1
"""A server is saturated by the fewest clients whose requests per second, times this, no others exceed."""


@app.command()
def http(
    url: Annotated[str, typer.Argument(envvar="UNPRM_CLIENT_URL", help="URL of the server.")] = _base.URL,
    clients: Annotated[int, typer.Option(min=1, help="Most clients at once; their number doubles from 1.")] = 64,
    seconds: Annotated[float, typer.Option(min=0.01, help="Seconds for each number of clients.")] = 5.0,
    key: Annotated[str | None, typer.Option(envvar="UNPRM_CLIENT_KEY", help="API key.", show_default=False)] = None,
) -> None:
    """Finds how many requests a second a server answers, and how fast.

    Each request scores 8 solutions of a problem with random numbers, so that the server's caches don't know it. What is
    in flight when the seconds are over is waited for, up to a minute. It ends if the first client gets no answer.
    """
    table = Table("clients", "requests/s", "p50 ms", "p95 ms", "errors")
    rates: dict[int, float] = {}
    for number in [*(2**k for k in range((clients - 1).bit_length())), clients]:
        began = time.perf_counter()
        taken, failed, last = asyncio.run(_load(url, key, number, began + seconds))
        if last and not (taken or rates):
            raise last
        rates[number] = len(taken) / (time.perf_counter() - began)
        times = [f"{1000 * taken[ceil(part * len(taken)) - 1]:.1f}" if taken else "–" for part in (0.5, 0.95)]
        errors = ", ".join(f"{count} × {reason}" for reason, count in failed.most_common())
        table.add_row(str(number), f"{rates[number]:.1f}", *times, errors or "0")
    console = Console()
    console.print(table)
    best = max(rates.values())
    enough = next(number for number, rate in rates.items() if rate * GAIN >= best)
    console.print(f"{'not ' * (enough == clients)}saturated by {enough} client{'s' * (enough > 1)}", highlight=False)


async def _load(
    url: str, key: str | None, clients: int, until: float
) -> tuple[list[float], Counter[str], ClientError | None]:
    """The sorted seconds of each answered request, how many failed for each reason, and the last error. Each client
    sends one at least, the last before `until`."""
    taken: list[float] = []
    failed, last = Counter[str](), None

    async def ask(client: AsyncClient) -> None:
        nonlocal last
        while True:
            sent = time.perf_counter()
            try:
                await client.score_steps(**_request())
                taken.append(time.perf_counter() - sent)
            except ClientError as error:
                failed[str(error.status or type(error).__name__)] += 1
                last = error
            if time.perf_counter() >= until:
                return

    async with AsyncClient(url, api_key=key, attempts=1) as client:
        await asyncio.gather(*(ask(client) for _ in range(clients)))
    return sorted(taken), failed, last


def _request() -> dict[str, Any]:
    """A word problem and different solutions, of which the first is right."""
    a, b, c = (random.randrange(2, 10_000) for _ in range(3))
    totals = range(a + b * c, a + b * c + SOLUTIONS)
    steps = [[f"{b} boxes have {b * c} pens.", f"{a} + {b * c} = {n}.", f"So it is \\boxed{{{n}}}."] for n in totals]
    problem = f"Ana has {a} pens and buys {b} boxes of {c} pens. How many has she?"
    return {"problem": problem, "solutions": [{"steps": each} for each in steps]}
