"""Jobs, groups and workers."""

import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from queue import SimpleQueue
from typing import Any

import pytest
from conftest import NewThreads

from collections_store import DatabaseBusy, StoreClosed
from collections_store.engine.group_commit import MAX_GROUP, GroupCommit
from collections_store.engine.jobs import Job
from collections_store.engine.permits import TransactionPermit
from collections_store.engine.workers import Workers
from collections_store.operations.operation import Operation
from collections_store.operations.session import Session


@dataclass(frozen=True)
class Nothing(Operation[None]):
    """An operation that is never run here."""

    name: str = ""
    writes = True
    atomic = True

    def __call__(self, session: Session) -> None:
        raise AssertionError


def finish_all(group: list[Job]) -> None:
    for job in group:
        job.finish(job.operation)


def groups(
    run_group: Callable[[list[Job]], None] = finish_all, timeout: float = 30.0
) -> GroupCommit:
    return GroupCommit(lambda operation, _: operation, run_group, timeout)


def test_a_job_is_claimed_once() -> None:
    job = Job(Nothing())
    barrier = threading.Barrier(8)
    claims: list[bool] = []

    def claim() -> None:
        barrier.wait()
        claims.append(job.claim())

    threads = [threading.Thread(target=claim) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(claims) == [False] * 7 + [True]
    job.unclaim()
    assert job.claim()


def test_a_running_job_can_be_interrupted() -> None:
    job, calls = Job(Nothing()), []
    job.abandon()
    assert job.abandoned
    job.running(lambda: calls.append("stop"))
    job.abandon()
    job.running(None)
    job.abandon()
    assert calls == ["stop"]


def test_an_outcome_is_a_result_or_an_error() -> None:
    job = Job(Nothing())
    job.finish("result")
    assert (job.outcome(), job.committed) == ("result", True)
    job = Job(Nothing())
    job.finish(error=ZeroDivisionError())
    assert not job.committed
    with pytest.raises(ZeroDivisionError):
        job.outcome()


def test_waiting_jobs_join_the_next_group() -> None:
    sizes: list[int] = []
    inside, go_on = threading.Event(), threading.Event()

    def slow(group: list[Job]) -> None:
        sizes.append(len(group))
        inside.set()
        go_on.wait(10)
        finish_all(group)

    commit = groups(slow)
    first = Job(Nothing())
    commit.waiting.append(first)
    leader = threading.Thread(target=commit.advance)
    leader.start()
    inside.wait(10)
    followers = [threading.Thread(target=commit.run, args=(Nothing(str(n)),)) for n in range(20)]
    for thread in followers:
        thread.start()
    while len(commit.waiting) < 20:
        time.sleep(0.001)
    go_on.set()
    for thread in [leader, *followers]:
        thread.join(10)
    assert sizes == [1, 20]


def test_groups_have_a_limit() -> None:
    sizes: list[int] = []

    def note(group: list[Job]) -> None:
        sizes.append(len(group))
        finish_all(group)

    commit = groups(note)
    for _ in range(MAX_GROUP + 10):
        commit.waiting.append(Job(Nothing()))
    while commit.waiting:
        commit.advance()
    assert sizes == [MAX_GROUP, 10]


def test_the_main_thread_runs_only_its_own_jobs() -> None:
    commit = groups(timeout=0.1)  # so long it lets others go first, whose threads would run them
    waiting = Job(Nothing("of another thread"))
    commit.waiting.append(waiting)
    assert commit.run(Nothing("own")) == Nothing("own")
    assert not waiting.done
    commit.advance()
    assert waiting.done


def test_the_writer_lock_excludes_other_writers() -> None:
    commit = groups()
    first = Job(Nothing("came first"))
    commit.waiting.append(first)
    with ThreadPoolExecutor(3) as threads:
        holder = TransactionPermit(None)
        locking = threads.submit(commit.lock_writer, holder)
        threads.submit(commit.advance).result(10)
        locking.result(10)
        assert first.done
        late = [threads.submit(commit.run, Nothing(str(n))) for n in range(2)]
        while len(commit.waiting) < 2:
            time.sleep(0.001)
        commit.advance()
        assert len(commit.waiting) == 2
        commit.unlock_writer(holder)
        assert {each.result(10).name for each in late} == {"0", "1"}
    assert commit.run(Nothing("own")) == Nothing("own")


def test_the_main_thread_lets_waiting_jobs_go_first() -> None:
    order: list[str] = []

    def note(group: list[Job]) -> None:
        order.extend(str(job.operation) for job in group)
        finish_all(group)

    commit = groups(note)
    with ThreadPoolExecutor(2) as threads:
        for number in range(50):
            holder = TransactionPermit(None)
            commit.lock_writer(holder)
            waiting = [threads.submit(commit.run, Nothing()) for _ in range(2)]
            while len(commit.waiting) < 2:
                time.sleep(0.001)
            commit.unlock_writer(holder)
            holder = TransactionPermit(None)
            commit.lock_writer(holder)
            assert len(order) == 2 * (number + 1)
            commit.unlock_writer(holder)
            assert [each.result(10) for each in waiting] == [Nothing(), Nothing()]


def test_a_wait_for_the_writer_lock_times_out() -> None:
    commit = GroupCommit(lambda operation, _: operation, finish_all, timeout=0.1)
    holder = TransactionPermit(None)
    commit.lock_writer(holder)
    with pytest.raises(DatabaseBusy, match="held the writer"):
        commit.run(Nothing("in the main thread"))
    with ThreadPoolExecutor(1) as threads, pytest.raises(DatabaseBusy, match="held the writer"):
        threads.submit(commit.run, Nothing("in another")).result(10)
    given_up = Job(Nothing())
    commit.waiting.append(given_up)
    while not given_up.done:
        commit.advance()
    with pytest.raises(DatabaseBusy):
        given_up.outcome()
    commit.unlock_writer(holder)
    assert commit.run(Nothing()) == Nothing()


def test_a_release_wakes_the_caller_of_the_oldest_job_alone() -> None:
    commit = groups()
    jobs = [Job(Nothing()), Job(Nothing())]
    for job in jobs:
        job.wake = SimpleQueue()
        commit.waiting.append(job)
    holder = TransactionPermit(None)
    commit.unlock_writer(holder)
    assert [job.wake.qsize() for job in jobs if job.wake is not None] == [1, 0]
    commit.advance()
    assert [job.wake.qsize() for job in jobs if job.wake is not None] == [2, 1]


def test_a_thread_that_writes_in_a_loop_goes_on_beside_waiting_threads_and_not_for_ever() -> None:
    has_gone_on, ended = threading.Event(), threading.Event()

    passed_over: dict[int, Job | None] = {}

    def alone(operation: Any, _: float) -> Any:
        thread, oldest = threading.get_ident(), commit._next_job()
        if oldest is not None and oldest is passed_over.get(thread):
            has_gone_on.set()
        time.sleep(0.0002)  # others begin to wait
        passed_over[thread] = commit._next_job()
        return operation

    def slowly(group: list[Job]) -> None:
        time.sleep(0.0002)
        finish_all(group)

    commit = GroupCommit(alone, slowly, has_streaks=True)
    turns = [threading.Event() for _ in range(3)]

    def work(event: threading.Event) -> None:
        for number in range(100):
            assert commit.run(Nothing(str(number))) == Nothing(str(number))
        event.set()
        while not ended.is_set():
            commit.run(Nothing())

    threads = [threading.Thread(target=work, args=(event,)) for event in turns]
    for thread in threads:
        thread.start()
    assert all(event.wait(60) for event in (has_gone_on, *turns))
    ended.set()
    for thread in threads:
        thread.join(60)
    assert commit.groups


def test_a_streak_that_ends_without_a_word_holds_nobody_up() -> None:
    threads: list[threading.Thread] = []

    def alone(operation: Any, _: float) -> Any:
        threads.append(threading.Thread(target=commit.run, args=(Nothing("other"),)))
        threads[-1].start()
        while not commit.waiting:
            time.sleep(0.001)
        commit._streak = threading.get_ident(), time.monotonic() + 60
        return operation

    commit = GroupCommit(alone, finish_all, has_streaks=True)
    with ThreadPoolExecutor(1) as looping:
        looping.submit(commit.run, Nothing("last of a streak")).result(10)
    threads[0].join(60)
    assert not threads[0].is_alive()
    assert not commit.waiting


def test_a_lost_permit_locks_nothing() -> None:
    commit = groups()
    commit.lock_writer(TransactionPermit(None))  # as after an exception between two lines
    assert commit.run(Nothing()) == Nothing()


def test_an_unexpected_error_of_a_group_reaches_all_waiters() -> None:
    def broken(group: list[Job]) -> None:
        raise ZeroDivisionError

    commit = groups(broken)
    jobs = [Job(Nothing()), Job(Nothing())]
    for job in jobs:
        commit.waiting.append(job)
    commit.advance()
    for job in jobs:
        with pytest.raises(ZeroDivisionError):
            job.outcome()


def test_workers_finish_submitted_jobs_before_they_stop(
    new_threads: NewThreads,
) -> None:
    done: list[Any] = []

    def run(job: Job) -> None:
        time.sleep(0.01)
        done.append(job)
        job.finish()

    workers = Workers(3)
    jobs = [Job(Nothing(str(n)), run) for n in range(12)]
    for job in jobs:
        workers.submit(job)
    in_group = Job(Nothing("group"))
    workers.submit_to_group(in_group, groups())
    workers.stop(30)
    assert len(done) == 12
    assert in_group.done
    assert not new_threads()
    late = Job(Nothing())
    workers.submit(late)
    with pytest.raises(StoreClosed):
        late.outcome()
    workers.stop(30)


def test_stopping_waits_no_longer_than_its_timeout() -> None:
    release, begun = threading.Event(), threading.Event()

    def run(job: Job) -> None:
        begun.set()
        release.wait(30)
        job.finish()

    workers = Workers(1)
    stuck, behind = Job(Nothing("stuck"), run), Job(Nothing("behind"), run)
    workers.submit(stuck)
    workers.submit(behind)
    assert begun.wait(10)
    workers.stop(0.1)
    with pytest.raises(StoreClosed):
        behind.outcome()
    release.set()
    [thread] = workers._threads
    thread.join(10)
    assert stuck.done
    assert not thread.is_alive()


def test_workers_are_started_on_demand() -> None:
    finished = threading.Semaphore(0)

    def run(job: Job) -> None:
        job.finish()
        finished.release()

    workers = Workers(4)
    assert workers._threads == []
    for _ in range(20):
        workers.submit(Job(Nothing(), run))
        finished.acquire(timeout=10)
        time.sleep(0.005)
    assert len(workers._threads) <= 2
    workers.stop(30)


def test_an_abandoned_job_is_not_run() -> None:
    ran: list[Job] = []
    release = threading.Event()

    def run(job: Job) -> None:
        release.wait(10)
        ran.append(job)
        job.finish()

    workers = Workers(1)
    first, second = Job(Nothing(), run), Job(Nothing(), run)
    workers.submit(first)
    workers.submit(second)
    assert second.claim()
    release.set()
    workers.stop(30)
    assert ran == [first]
