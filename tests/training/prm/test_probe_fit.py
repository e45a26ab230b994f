"""The fit of a probe: it finds what is there, its scores are probabilities, and folding changes nothing."""

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

from training.evaluate.metrics import Validation
from training.prm.probe import FOLDS, Features, fit
from unprm.calibration import sigmoid
from unprm.errors import ModelInvalid

LAYERS = (3, 5)
HIDDEN = 12
INFORMATIVE = 5
"""The layer where the direction is that tells right steps."""


def _made(steps, seed=0, shift=1.0):
    """Steps of 60 problems, whose log-odds are a direction in the states of `INFORMATIVE`, a measure, and `shift`; the
    states of the rest are noise far from 0, of very different sizes."""
    rng = np.random.default_rng(seed)
    states = rng.normal(size=(len(LAYERS), steps, HIDDEN)) * np.logspace(-2, 2, HIDDEN) + 7.0
    measures = rng.exponential(size=(steps, 2)) * (1.0, 30.0)
    direction = np.linspace(-1, 1, HIDDEN) / np.logspace(-2, 2, HIDDEN)
    odds = (states[LAYERS.index(INFORMATIVE)] - 7.0) @ direction * 1.5 - measures[:, 1] / 30 + shift
    right = rng.random(steps) < 1 / (1 + np.exp(-odds))
    features = Features(LAYERS, states.astype(np.float16), measures.astype(np.float32))
    return features, right, [f"problem {k}" for k in rng.integers(0, 60, steps)]


@pytest.fixture(scope="module")
def made():
    return _made(1500)


@pytest.fixture(scope="module")
def fitted(made):
    return fit(*made)


def test_the_layer_that_tells_is_found_and_new_steps_are_told(fitted):
    assert INFORMATIVE in fitted.probe.layers
    assert max(fitted.readouts, key=lambda key: fitted.readouts[key].auroc) == INFORMATIVE
    features, right, _ = _made(1500, seed=1)
    scores = [[sigmoid(margin)] for margin in fitted.probe.margins(features).tolist()]
    found = Validation.of(scores, right[:, None].tolist())
    assert found.auroc > 0.8
    # and a little better than by the states or the measures alone
    assert fitted.whole.log_loss < min(fitted.readouts[INFORMATIVE].log_loss, fitted.measures.log_loss)


@pytest.mark.parametrize("shift", [1.0, 4.0])
def test_a_score_is_the_probability_that_such_a_step_is_right_however_rare_wrong_ones_are(shift):
    fitted = fit(*_made(1500, shift=shift))
    features, right, _ = _made(4000, seed=1, shift=shift)
    scores = 1 / (1 + np.exp(-fitted.probe.margins(features)))
    assert scores.mean() == pytest.approx(right.mean(), abs=0.02)
    for low, high in ((0, 0.5), (0.5, 0.8), (0.8, 1)):
        among = (low <= scores) & (scores < high)
        if among.sum() > 200:
            assert right[among].mean() == pytest.approx(scores[among].mean(), abs=0.08)


def test_the_folded_probe_is_the_pipeline_that_it_was_folded_from(made, fitted):
    features, right, _ = made

    def regression(columns, strength):
        model = LogisticRegression(C=1 / (strength * len(right)), tol=1e-3, max_iter=1000)
        standard = (columns - columns.mean(0)) / columns.std(0)
        return lambda: model.fit(standard, right).decision_function(standard)

    layers = fitted.probe.layers
    strengths = [fitted.readouts[layer].strength for layer in layers]
    columns = [features.of(layer).astype(np.float64) for layer in layers]
    read = [regression(each, strength)() for each, strength in zip(columns, strengths, strict=True)]
    crossed = [fitted.readouts[layer].margins for layer in layers]
    stacked = np.column_stack([*crossed, features.measures])
    scale = stacked.std(0)
    last = LogisticRegression(C=1 / (fitted.whole.strength * len(right)), tol=1e-3, max_iter=1000)
    last.fit((stacked - stacked.mean(0)) / scale, right)
    unfolded = last.decision_function((np.column_stack([*read, features.measures]) - stacked.mean(0)) / scale)
    assert fitted.probe.margins(features) == pytest.approx(unfolded, abs=2e-3)


def test_no_step_is_predicted_by_what_was_fitted_to_its_problem(made):
    """Columns that name the problem tell its steps' labels where its steps are fitted, and nothing elsewhere."""
    rng = np.random.default_rng(3)
    problems = np.repeat(np.arange(40), 10)
    right = np.repeat(rng.random(40) < 0.5, 10)
    states = np.zeros((1, 400, 40), dtype=np.float16)
    states[0, np.arange(400), problems] = 1
    found = fit(Features((1,), states, rng.normal(size=(400, 1))), right, problems.tolist())
    assert found.whole.auroc < 0.6
    assert found.readouts[1].auroc < 0.6


def test_columns_that_never_change_say_nothing(made):
    features, right, problems = made
    states = features.states.copy()
    states[..., 0] = 300
    found = fit(Features(LAYERS, states, features.measures), right, problems).probe
    assert np.isfinite(found.token_weight).all()
    assert (found.token_weight.reshape(-1, HIDDEN)[:, 0] == 0).all()


@pytest.mark.parametrize("fault", ["one kind", "few problems", "wrong ones of one problem"])
def test_what_can_not_be_held_out_is_refused(made, fault):
    features, right, problems = made
    right, names = np.array(right), list(problems)
    if fault == "one kind":
        right[:] = True
    elif fault == "few problems":
        names = [hash(name) % (FOLDS - 1) for name in names]
    else:
        right = np.array([name != "problem 1" for name in names])
    with pytest.raises(
        ModelInvalid, match=r"right and wrong steps of at least 5 problems.* there are [\d,]+ right and"
    ):
        fit(features, right, names)


def test_equal_data_gives_equal_bytes(made, fitted):
    again = fit(*made)
    assert again.probe.token_weight.tobytes() == fitted.probe.token_weight.tobytes()
    assert again.probe.measure_weight.tobytes() == fitted.probe.measure_weight.tobytes()
