"""What a procedure keeps between its operations."""

from contextlib import closing

from collections_store.operations.procedures import Spool


def test_the_first_value_of_a_spool_stays_as_it_is() -> None:
    with closing(Spool[list[int]]()) as spool:
        spool.append(first := [1])
        [found] = spool
        assert found is first


def test_a_spool_returns_values_in_their_order_as_often_as_it_is_read() -> None:
    with closing(Spool[list[int]]()) as spool:
        for number in range(3):
            spool.append([number])
        assert len(spool) == 3
        assert list(spool) == list(spool) == [[0], [1], [2]]
