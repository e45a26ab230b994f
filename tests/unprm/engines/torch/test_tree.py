"""The tree of what is computed: every distinct prefix once, and only what was not used for longest is let go."""

from hypothesis import given
from hypothesis import strategies as st

from unprm.engines.torch.tree import PrefixTree

sequences = st.lists(st.lists(st.integers(0, 2), min_size=1, max_size=8), min_size=1, max_size=8)


def _prefixes(several):
    return {tuple(ids[:k]) for ids in several for k in range(1, len(ids) + 1)}


def _tokens(node):
    return [token for part in node.path() for token in part.ids]


def _slots(node):
    return [slot for part in node.path() for slot in part.slots.tolist()]


@given(sequences)
def test_every_distinct_prefix_is_there_once(several):
    tree = PrefixTree(100)
    ends = [tree.add(ids) for ids in several]
    assert len(tree) == len(_prefixes(several))
    slots = {}
    for ids, end in zip(several, ends, strict=True):
        assert _tokens(end) == ids  # also of nodes that were cut since
        assert tree.missing(ids) == 0
        for k, slot in enumerate(_slots(end)):
            assert slots.setdefault(tuple(ids[: k + 1]), slot) == slot
    assert len(set(slots.values())) == len(slots)  # a slot for each prefix, and no two in one
    assert set(slots.values()) <= set(range(100))


@given(sequences, st.lists(st.integers(0, 3), min_size=1, max_size=12))
def test_missing_counts_what_no_other_sequence_brought(several, ids):
    tree = PrefixTree(100)
    for sequence in several:
        tree.add(sequence)
    known = _prefixes(several)
    assert tree.missing(ids) == sum(tuple(ids[:k]) not in known for k in range(1, len(ids) + 1))


def test_a_node_that_is_cut_keeps_what_was_read_at_each_token():
    tree = PrefixTree(10)
    end = tree.add([5, 6, 7])
    end.values |= {0: 0.1, 2: 0.3}
    end.fresh = False
    other = tree.add([5, 6, 8])
    (head, *_), (_, tail) = other.path(), end.path()
    assert (head.values, tail.values, other.values) == ({0: 0.1}, {2: 0.3}, {})
    assert (head.fresh, tail.fresh, other.fresh) == (False, False, True)


def test_what_was_not_used_for_longest_goes_first_and_nothing_of_this_pass():
    tree = PrefixTree(6)
    for ids in ([1, 2], [3, 4], [5, 6]):
        tree.begin()
        tree.add(ids)
    tree.begin()
    assert tree.add([1, 2]) is not None  # used again, [3, 4] is the oldest now
    assert tree.add([1, 7]) is not None
    assert [tree.missing(ids) for ids in ([1, 2], [3, 4], [5, 6], [1, 7])] == [0, 2, 0, 0]
    assert tree.add([8, 9, 10]) is not None
    assert [tree.missing(ids) for ids in ([1, 2], [5, 6], [1, 7])] == [0, 2, 0]
    assert tree.add([11]) is None  # all six are of this pass
    tree.begin()
    assert tree.add([11]) is not None


def test_what_others_go_on_from_outlives_them():
    tree = PrefixTree(10)
    tree.begin()
    tree.add([1, 2, 3])
    tree.begin()
    tree.add([1, 2, 4])
    tree.trim(3)
    assert [tree.missing(ids) for ids in ([1, 2], [1, 2, 3], [1, 2, 4])] == [0, 1, 0]
    tree.trim(2)
    assert (tree.missing([1, 2]), len(tree)) == (0, 2)
    tree.trim(0)
    assert len(tree) == 0


@given(st.lists(st.tuples(st.lists(st.integers(0, 2), min_size=1, max_size=8), st.booleans()), max_size=30))
def test_slots_are_never_lost_nor_given_twice(steps):
    tree = PrefixTree(12)
    ends = {}
    for ids, begins in steps:
        if begins:
            tree.begin()
            ends = {}
        end = tree.add(ids)
        if end is not None:
            ends[tuple(ids)] = end
        held = {}
        for sequence, node in ends.items():  # nothing of this pass is let go
            for k, slot in enumerate(_slots(node)):
                held[sequence[: k + 1]] = slot
        assert len(set(held.values())) == len(held) <= len(tree) <= 12
    tree.trim(0)
    assert len(tree) == 0
    tree.begin()
    assert sorted(_slots(tree.add(list(range(12))))) == list(range(12))


@given(sequences, sequences)
def test_scopes_share_nothing(several, others):
    tree = PrefixTree(200)
    for ids in several:
        tree.add(ids, "a")
    for ids in others:
        assert tree.missing(ids, "b") == len(ids)
        tree.add(ids, "c")
    assert len(tree) == len(_prefixes(several)) + len(_prefixes(others))
    tree.trim(0)
    assert len(tree) == 0
