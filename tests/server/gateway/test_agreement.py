"""The gateway of a server whose model is `agreement`, which gives no rewards."""

from contextlib import AbstractContextManager

import openai
import pytest

from tests.fakes import Upstream, upstream
from tests.server.gateway.harness import ask, boxed
from tests.server.harness import Running, serving
from unprm.engines.agreement import AgreementEngine


def gateway(reasoner: Upstream) -> AbstractContextManager[Running]:
    return serving(AgreementEngine(64), upstream_url=reasoner.url)


def test_it_votes_by_majority_and_buys_nothing_for_a_vote_by_rewards() -> None:
    with upstream(boxed(1), boxed(2), boxed(2)) as reasoner, gateway(reasoner) as running:
        with pytest.raises(openai.UnprocessableEntityError, match="wrf takes rewards, and agreement gives none"):
            ask(running, extra_body={"unprm": {"strategy": "wrf"}})
        assert reasoner.bodies == []
        report = ask(running, extra_body={"unprm": {"budget": 3, "round": 3}}).unprm
    assert (report["answer"], report["strategy"]) == ("2", "majority")
    assert any("agreement gives no rewards" in note for note in report["notes"])


def test_where_nothing_can_be_voted_on_nothing_is_elected() -> None:
    with upstream("def f(): ...", "def g(): ...") as reasoner, gateway(reasoner) as running:
        answer = ask(running, extra_body={"unprm": {"budget": 2}})
    assert answer.choices[0].message.content == "def f(): ..."
    assert answer.unprm["decided_by"] is None
