"""Many concurrent clients, with Zipf-distributed questions, against padded batches of each request without HTTP and, if
installed, vLLM's pooling server."""

import random
import tempfile
from importlib.util import find_spec
from pathlib import Path

from benchmarks import baselines, clients, models, servers
from benchmarks.baselines import Plain, padded
from benchmarks.queries import CANDIDATES, QUESTIONS, score_steps, zipf
from benchmarks.timing import Comparison, timed
from unprm.formats.unprm import PrmConfig, UnprmFormat
from unprm.models.checkpoint import load_tokenizer

REQUESTS, CLIENTS = 80, 16


def run() -> list[Comparison]:
    """Runs the servers in fp32, one after the other, as both at once would share the cores."""
    what = f"{CLIENTS} clients, {REQUESTS} requests of {CANDIDATES} candidates, {QUESTIONS} questions, over HTTP"
    with tempfile.TemporaryDirectory() as directory:
        place = models.write(Path(directory))
        plain = Plain.load(place)
        form = UnprmFormat(load_tokenizer(place), PrmConfig.read(place))
        warm, measured = zipf(random.Random(1), 4), zipf(random.Random(0), REQUESTS)
        encoded = [[form.encode(problem, steps) for steps in solutions] for problem, solutions in measured]
        padded(plain, encoded[0])
        rows = {"padded batches of each request, no HTTP": timed(lambda: [padded(plain, items) for items in encoded])}
        with servers.unprm("--dtype=float32", model=place) as (url, _):
            clients.call(url, list(map(score_steps, warm)), CLIENTS)
            taken = timed(clients.call, url, list(map(score_steps, measured)), CLIENTS)
        if find_spec("vllm"):
            inputs = [{"model": "m", "input": [item.ids for item in items]} for items in encoded]
            bodies = [clients.request("/pooling", body | {"task": "token_classify"}) for body in inputs]
            with baselines.vllm(place, "--served-model-name=m") as url:
                clients.call(url, bodies[:1], 1)
                rows["vLLM's pooling server"] = timed(clients.call, url, bodies, CLIENTS)
    everything = [item for items in encoded for item in items]
    allowed = plain.work(everything) / plain.least(everything)
    return [Comparison(what, taken, name, seconds, allowed=allowed) for name, seconds in rows.items()]
