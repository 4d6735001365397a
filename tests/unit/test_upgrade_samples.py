"""Differences of two bodies: bounded work for bodies of many repeated lines."""

from collections_store.results import MAX_PAIRS, UpgradeSample


def test_bodies_of_many_repeated_lines_are_not_compared() -> None:
    """`difflib` would take minutes for them."""
    count = 30_000
    before, after = [n % 150 for n in range(count)], [n * 7 % 149 for n in range(count)]
    lines = UpgradeSample("a", before, after).diff().splitlines()
    assert [line[0] for line in lines] == ["-"] * (count + 2) + ["+"] * (count + 2)


def test_large_bodies_of_different_lines_are_compared() -> None:
    before = list(range(MAX_PAIRS // 2))
    after = [-1, *before, -2]
    lines = UpgradeSample("a", before, after).diff().splitlines()
    assert [line for line in lines if line[0] == "+"] == ["+   -1,", f"+   {before[-1]},", "+   -2"]
    assert [line for line in lines if line[0] == "-"] == [f"-   {before[-1]}"]
