"""The command `demo`: a process stores an agent's facts, and another process finds the facts."""

from __future__ import annotations

import inspect
import os
import subprocess
import sys
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import click

from .output import Exit, Failure, emit, to_text

_PARTS = ("remember", "recall")


def remember(url: str) -> None:
    """Write facts and dialogues into two collections."""
    from collections_store import Store

    with Store(url) as store:
        facts = store.collection("demo_facts")
        facts.put("ada", {"person": {"name": "Ada", "city": "Berlin"}, "likes": ["thai", "tea"]})
        facts.put("grace", {"person": {"name": "Grace", "city": "Paris"}, "likes": ["coffee"]})

        dialogues = store.collection("demo_dialogues")
        ask = {"speaker": "user", "text": "A table for two, please.", "frame": {"intent": "book"}}
        answer = {"speaker": "agent", "text": "At seven?", "frame": {"intent": "offer"}}
        dialogues.put("ada-1", {"with": "ada", "turns": [ask, answer]})
        dialogues.put("grace-1", {"with": "grace", "turns": [{"speaker": "user", "text": "Hello"}]})


def recall(url: str) -> dict[str, list[Any]]:
    """Query nested fields."""
    from collections_store import Store

    with Store(url) as store:
        facts = store.collection("demo_facts")
        dialogues = store.collection("demo_dialogues")
        return {
            "who lives in Berlin?": facts.find("person.city", "Berlin"),
            "who likes coffee?": facts.find({"likes": "coffee"}),
            "where was a table booked?": dialogues.find({"turns.frame.intent": "book"}),
        }


@click.command()
@click.option(
    "--file",
    type=click.Path(dir_okay=False, path_type=Path),
    help="The SQLite file to create and keep. Default: a temporary one.",
)
@click.option("--part", type=click.Choice(_PARTS), hidden=True)
def demo(*, file: Path | None, part: str | None) -> None:
    """Run a demonstration: two processes, one SQLite file, no server and no network.

    The first process stores facts and dialogues and ends. The second process finds both by nested fields. The
    demonstration prints the code:

    \b
      collections-store demo --file agent.db
    """
    if part is not None and file is not None:
        _play(part, f"sqlite:///{file}")
        return
    with ExitStack() as stack:
        if file is None:
            file = Path(stack.enter_context(TemporaryDirectory())) / "agent.db"
        file = file.resolve()
        emit("An agent keeps what it learns in one SQLite file:")
        emit(f"  {file}\n")
        emit("1. A first process stores two people and two dialogues, and ends.")
        _run("remember", file)
        emit(f"   Only the file remains: {file.stat().st_size:,} bytes.\n")
        emit("2. A second process opens the file and finds them by nested fields.")
        _run("recall", file)
        emit("The first process ran:\n")
        emit(_source(remember))
        emit("The second process ran:\n")
        emit(_source(recall))
        emit("On PostgreSQL the code is the same, with another URL.")


def _run(part: str, file: Path) -> None:
    """Run one part in its own process, and print its output."""
    sys.stdout.flush()
    command = [sys.executable, "-m", "collections_store", "demo", "--part", part, "--file"]
    done = subprocess.run([*command, str(file)], stdout=subprocess.PIPE, check=False)
    emit(done.stdout.decode().rstrip("\n") + "\n")
    if done.returncode:
        raise Failure(f"the process of {part} failed", Exit.FAILED)


def _play(part: str, url: str) -> None:
    emit(f"   [process {os.getpid()}]")
    if part == "remember":
        remember(url)
        emit("   put 2 documents into demo_facts and 2 into demo_dialogues")
        return
    for question, answers in recall(url).items():
        emit(f"   {question}")
        for id, body in answers:
            emit(f"     {id}: {to_text(body)}")


def _source(function: Callable[..., Any]) -> str:
    """Return the source of a function, indented and without its docstring."""
    lines = inspect.getsource(function).splitlines(keepends=True)
    return "".join(f"    {line}" if line.strip() else line for line in (lines[0], *lines[2:]))
