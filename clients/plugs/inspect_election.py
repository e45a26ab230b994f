"""Inspect: answers compared as mathematics, and votes among the epochs of a sample."""

from inspect_ai import Epochs, Task, eval
from inspect_ai.dataset import FieldSpec, json_dataset
from inspect_ai.scorer import CORRECT, INCORRECT, Score, accuracy, score_reducer, scorer
from inspect_ai.solver import generate

from unprm.answers.equivalence import Equivalence
from unprm.answers.extraction import extract
from unprm_client import Client

client = Client("http://127.0.0.1:8000")
equivalence = Equivalence()


@scorer(metrics=[accuracy()])
def same_answer():
    async def score(state, target):
        solution = state.output.completion
        answer = extract(solution)
        right = answer is not None and equivalence.equal(answer, target.text)
        said = {"problem": state.input_text, "solution": solution}
        return Score(value=CORRECT if right else INCORRECT, answer=answer, metadata=said)

    return score


def elected(strategy):
    @score_reducer(name=f"elected_by_{strategy}")
    def vote():
        def reduce(scores):
            candidates = sorted(scores, key=lambda score: score.metadata["solution"])
            if all(score.answer is None for score in candidates):
                return candidates[0]
            solutions = [score.metadata["solution"] for score in candidates]
            chosen = client.vote(candidates[0].metadata["problem"], solutions, strategy)
            return candidates[chosen.solution_index]

        return reduce

    return vote()


task = Task(
    dataset=json_dataset("questions.jsonl", FieldSpec(input="problem", target="answer")),
    solver=generate(),
    scorer=same_answer(),
    epochs=Epochs(6, [elected("majority"), elected("wrf"), elected("prm")]),
)
(log,) = eval(task, model="openai-api/lab/reasoner", model_base_url="http://gpu-1:8000/v1", display="none")
for view in log.results.scores:
    print(view.reducer, view.metrics["accuracy"].value)
