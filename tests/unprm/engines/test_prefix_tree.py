"""Trees of tokens: every distinct prefix once, and each token sees its own sequence alone."""

from hypothesis import given
from hypothesis import strategies as st

from unprm.engines.prefix_tree import Tree, forest

sequences = st.lists(st.lists(st.integers(0, 2), min_size=1, max_size=8), min_size=1, max_size=8)


def _prefixes(several):
    return {tuple(ids[:k]) for ids in several for k in range(1, len(ids) + 1)}


@given(sequences)
def test_every_distinct_prefix_is_there_once(several):
    tree = Tree()
    for ids in several:
        tree.add(ids)
    assert len(tree) == len(_prefixes(several)) == sum(tree.computed)
    for ids, path in zip(several, tree.paths, strict=True):
        assert [tree.ids[k] for k in path] == ids
        assert [tree.depths[k] for k in path] == list(range(len(ids)))
        assert tree.known(ids) == path


@given(sequences)
def test_a_token_sees_what_is_before_it_in_its_sequence(several):
    tree = Tree()
    for ids in several:
        tree.add(ids)
    expected = {path[k]: set(path[: k + 1]) for path in tree.paths for k in range(len(path))}
    visible = tree.visible()
    for token, seen in expected.items():
        assert set(visible[token].nonzero()[:, 0].tolist()) == seen


@given(sequences, st.integers(1, 20))
def test_a_forest_holds_each_sequence_once_within_its_bounds(several, most):
    trees = list(forest(dict(enumerate(several)), most))
    assert sorted(index for indices, _ in trees for index in indices) == list(range(len(several)))
    for indices, tree in trees:
        assert [[tree.ids[k] for k in path] for path in tree.paths] == [several[index] for index in indices]
        assert len(tree) <= most or len(indices) == 1


def test_what_a_sequence_shares_was_brought_by_those_before_it():
    tree = Tree()
    for ids in ([5, 6, 7], [5, 6, 8, 9], [5, 6, 7], [4]):
        tree.add(ids)
    assert tree.computed == [3, 2, 0, 1]
    assert tree.ids == [5, 6, 7, 8, 9, 4]
