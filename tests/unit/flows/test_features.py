"""Every row of the table of features names something."""

from __future__ import annotations

import pytest

from flows.features import FEATURES, feature


@pytest.mark.parametrize("name", FEATURES)
def test_a_feature_is_there(name: str) -> None:
    assert feature(name)
