"""Long computations check periodically whether to stop."""

import pytest

from collections_store.expressions.budget import STEPS, checked_by, spend


class Stopped(Exception):
    pass


def test_a_computation_is_checked_periodically() -> None:
    checks: list[None] = []
    with checked_by(lambda: checks.append(None)):
        for _ in range(10 * STEPS):
            spend()
    assert 9 <= len(checks) <= 10


def test_the_check_ends_the_computation_and_is_removed() -> None:
    def stop() -> None:
        raise Stopped

    with pytest.raises(Stopped), checked_by(stop):
        spend(2 * STEPS)
    spend(2 * STEPS)
