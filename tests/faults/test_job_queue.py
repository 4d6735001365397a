"""The program of `docs/how-to/job-queue.md`, whose workers are killed."""

import ast
import os
import time
from contextlib import suppress
from typing import Any

from backends import Backend
from faults.test_processes import finish, start
from pages import DOCS, blocks

from collections_store import ReturnDocument, Store, VersionConflict

JOBS = 30
LEASE = 3.0
"""Seconds. The other jobs are done long before."""


def functions(store: Store) -> dict[str, Any]:
    """Return the functions of the page, with a short lease."""
    source = "".join(
        b.text for b in blocks(DOCS / "how-to" / "job-queue.md") if b.language == "python"
    )
    definitions: list[ast.stmt] = [
        node for node in ast.parse(source).body if isinstance(node, ast.FunctionDef)
    ]
    namespace: dict[str, Any] = {
        "ReturnDocument": ReturnDocument,
        "VersionConflict": VersionConflict,
        "jobs": store.collection("jobs", changes="after", changes_kept=10_000),
        "suppress": suppress,
        "time": time,
    }
    exec(compile(ast.Module(definitions, []), "job-queue.md", "exec"), namespace)
    namespace["claim"].__defaults__ = (LEASE,)
    return namespace


def work(url: str, options: dict[str, Any]) -> None:
    """Do jobs, and print their ids."""
    with Store(url, **options) as store:
        functions(store)["work"](lambda job: print(job.id, flush=True), idle=0.1)


def hang(url: str, options: dict[str, Any]) -> None:
    """Claim a job, print its id, and hang."""

    def handle(job: Any) -> None:
        os.write(1, f"{job.id}\n".encode())
        time.sleep(1000)

    with Store(url, **options) as store:
        functions(store)["work"](handle, idle=0.1)


def test_the_jobs_of_killed_workers_are_done_by_others(shared_backend: Backend) -> None:
    with Store(shared_backend.url, **shared_backend.options) as store:
        jobs = functions(store)["jobs"]
        jobs.insert_many({str(number): {"state": "new"} for number in range(JOBS)})
        victims = [start(hang, shared_backend) for _ in range(2)]
        claimed = {each.stdout.readline().strip() for each in victims}
        for each in victims:
            each.kill()
        workers = [start(work, shared_backend) for _ in range(2)]
        done = [id for output in finish(*workers) for id in output.split()]
        assert len(claimed) == 2
        assert sorted(done) == sorted(str(number) for number in range(JOBS))
        assert jobs.count() == 0
