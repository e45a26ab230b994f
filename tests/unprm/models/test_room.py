"""Whether a model's weights have room in a container."""

import pytest

from unprm.errors import ModelInvalid
from unprm.models.load import check_room


def test_weights_beyond_a_container_s_limit_are_refused() -> None:
    check_room("m", 10**9, 10**9)
    with pytest.raises(ModelInvalid, match=r"the weights of m take 2\.00 GB, .* limit leaves 1\.50 GB"):
        check_room("m", 2 * 10**9, 15 * 10**8)
