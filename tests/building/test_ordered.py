"""Jobs come back in their order, few at a time, whoever does them; a job may depend on the result before it."""

import os
import time
from collections.abc import Iterator

import pytest

from spanloom.building.ordered import in_order, pool_of
from spanloom.errors import WorkerError


def slowest_first(number: int) -> int:
    time.sleep(0.2 if number == 0 else 0)
    return number * number


def die(number: int) -> int:
    os._exit(1)


def raised(number: int) -> int:
    if number == 2:
        raise ValueError("the third")
    return number


def named(number: int) -> str:
    return f"job {number}"


@pytest.mark.parametrize("workers", [1, 2])
def test_results_come_in_the_order_of_the_jobs(workers: int) -> None:
    with pool_of(workers) as pool:
        done = list(in_order(range(9), slowest_first, pool, what=named))
    assert done == [(number, number * number) for number in range(9)]


def test_jobs_are_taken_only_when_a_worker_can_be_given_one() -> None:
    taken = []

    def jobs() -> Iterator[int]:
        for number in range(50):
            taken.append(number)
            yield number

    with pool_of(2) as pool:
        done = in_order(jobs(), slowest_first, pool, what=named)
        assert next(done) == (0, 0)
        assert taken == [0, 1, 2, 3], "two for each worker"
        assert [job for job, _ in done] == list(range(1, 50))


@pytest.mark.parametrize("workers", [1, 2])
def test_one_at_a_time_a_job_may_depend_on_the_result_before_it(workers: int) -> None:
    left = 100

    def jobs() -> Iterator[int]:
        while left > 50:
            yield 100 - left

    with pool_of(workers) as pool:
        seen = []
        for job, _ in in_order(jobs(), slowest_first, pool, what=named, at_once=1):
            left -= 20
            seen.append(job)
    assert seen == [0, 20, 40]


@pytest.mark.parametrize("workers", [1, 2])
def test_the_first_fault_ends_the_iteration(workers: int) -> None:
    with pytest.raises(ValueError, match="the third"), pool_of(workers) as pool:
        seen = []
        for job, _ in in_order(range(9), raised, pool, what=named):
            seen.append(job)
    assert seen == [0, 1]


def test_a_dead_worker_is_named_by_its_job() -> None:
    with pytest.raises(WorkerError, match="job 0"), pool_of(2) as pool:
        list(in_order(range(3), die, pool, what=named))
