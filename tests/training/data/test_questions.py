"""Questions whose answers are stated in their solutions."""

import json

import pytest

from training.data.questions import load
from unprm.errors import RecordInvalid


def test_the_answer_is_looked_for_in_the_solution_as_the_settings_say(tmp_path):
    path = tmp_path / "questions.jsonl"
    path.write_text(json.dumps({"problem": "1 + 1?", "solution": "We add, and get 2."}) + "\n", "utf-8")
    with pytest.raises(RecordInvalid):
        load(str(path))
    (question,) = load(str(path), extraction="last_number")
    assert question.gold_answer == "2"
    path.write_text(json.dumps({"problem": "1 + 1?", "solution": "1 + 1 = 2\n#### 2"}) + "\n", "utf-8")
    assert load(str(path))[0].gold_answer == "2"
