"""The web page in Chromium: time from available scores to the rendered page, for 256 candidates of 20 steps."""

import random
import shutil
import statistics
from typing import Any

from playwright.sync_api import Page, sync_playwright

from benchmarks import servers
from benchmarks.timing import Comparison

CANDIDATES, STEPS, ROUNDS = 256, 20, 9

# forces a layout after each action, so that all work before anything is visible is measured
_RENDER = """
async ([solutions, rounds]) => {
  const { Results } = await import("./page/results.js");
  const headers = { "Content-Type": "application/json" };
  const request = { solutions: solutions.map(({ steps, answer, step_scores }) => ({ steps, answer, step_scores })) };
  const votes = await (await fetch("vote/compare", { method: "POST", body: JSON.stringify(request), headers })).json();
  const results = new Results(async () => votes);
  const timed = async (act) => {
    const start = performance.now();
    await act();
    document.body.getBoundingClientRect();
    return (performance.now() - start) / 1000;
  };
  const show = () => {
    results.showScores("$x$", solutions, 0.5, request);
    return results.vote();
  };
  const timings = { show: [], vote: [] };
  for (let k = 0; k < rounds; k += 1) {
    timings.show.push(await timed(show));
    results.ballot.choose({ alpha: (k + 1) / (rounds + 1) });
    timings.vote.push(await timed(() => results.vote()));
  }
  return timings;
}
"""
_ASK = """
async ([solutions, rounds]) => {
  const timings = { score_steps: [], "vote/compare": [] };
  for (let k = 0; k < rounds; k += 1) {
    for (const [address, seconds] of Object.entries(timings)) {
      const start = performance.now();
      const headers = { "Content-Type": "application/json" };
      await (await fetch(address, { method: "POST", body: JSON.stringify({ solutions }), headers })).json();
      seconds.push((performance.now() - start) / 1000);
    }
  }
  return timings;
}
"""


def run() -> list[Comparison]:
    """Compares the rendering with the requests, with step scores given, that fetch the same data."""
    solutions = _solutions(random.Random(0))
    with servers.unprm() as (url, _), sync_playwright() as playwright:
        program = shutil.which("chromium") or shutil.which("google-chrome")
        browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        page = browser.new_page()
        page.goto(url)
        drawn = _measured(page, _RENDER, solutions)
        requested = _measured(
            page, _ASK, [{k: solution[k] for k in ("steps", "answer", "step_scores")} for solution in solutions]
        )
        browser.close()
    what = f"{CANDIDATES} candidates of {STEPS} steps"
    medians = {name: statistics.median(seconds) for name, seconds in {**drawn, **requested}.items()}
    return [
        Comparison(f"{what}: drawn", medians["show"], "the request for them", medians["score_steps"], ROUNDS),
        Comparison(f"{what}: another α", medians["vote"], "the request", medians["vote/compare"], ROUNDS),
    ]


def _measured(page: Page, script: str, solutions: list[dict[str, Any]]) -> Any:
    return page.evaluate(script, [solutions, ROUNDS])


def _solutions(rng: random.Random) -> list[dict[str, Any]]:
    def solution() -> dict[str, Any]:
        steps = [f"Step {k + 1}: so $x_{{{k}}} = {rng.randint(1, 999)}$, as $y > 0$ holds." for k in range(STEPS)]
        scores = [round(rng.random(), 4) for _ in range(STEPS)]
        answer = str(rng.randint(0, 40))
        return {"id": None, "steps": steps, "step_scores": scores, "reward": min(scores), "answer": answer}

    return [solution() for _ in range(CANDIDATES)]
