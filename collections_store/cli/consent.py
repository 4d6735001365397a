"""Asking before something is deleted."""

from __future__ import annotations

import sys

import click

from .exits import Exit, Failure


def consent(question: str) -> None:
    """Ask; raises `Failure` where the answer is no, and `UsageError` where nobody can answer."""
    if not sys.stdin.isatty():
        raise click.UsageError("there is no terminal to ask on: say --yes to delete")
    if not click.confirm(question, err=True):
        raise Failure("nothing was deleted", Exit.NO)
