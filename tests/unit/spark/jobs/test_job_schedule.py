"""When jobs are due, and for what: intervals, pauses after failures, upkeep that lets the writer be."""

from math import inf

import pytest

from leadline.spark.jobs.backoff import BackOff
from leadline.spark.jobs.job_schedule import PATIENCE, JobQueue, JobSchedule, StepFailure, Upkeep, UpkeepSpec

HOURLY = UpkeepSpec(1 << 20, compact_every_s=3600, vacuum_every_s=inf)


def schedule(now_s: float = 0.0, *, is_by_key: bool = False, upkeep: UpkeepSpec = HOURLY) -> JobSchedule:
    return JobSchedule.starting(now_s, 30.0, upkeep, is_by_key=is_by_key)


def queue(**jobs: JobSchedule) -> JobQueue:
    made = JobQueue()
    made.jobs.update(jobs)
    return made


def test_pauses_double_up_to_a_limit_and_start_again_after_a_success() -> None:
    back_off = BackOff(1, 30)
    assert [back_off.failed() for _ in range(7)] == [1, 2, 4, 8, 16, 30, 30]
    back_off.succeeded()
    assert back_off.failed() == 1
    assert [back_off.failed() for _ in range(100_000)][-1] == 30  # a year of failures


def test_the_job_that_is_due_for_the_longest_time_comes_first_and_has_one_worker() -> None:
    jobs = queue(late=schedule(5), early=schedule(3), later=schedule(99))
    assert [jobs.take_write(10) for _ in range(3)] == ["early", "late", None]
    assert jobs.next_write_s() == 99


def test_a_table_that_is_behind_goes_on_at_once_behind_the_others() -> None:
    jobs = queue(big=schedule(0), small=schedule(1))
    assert jobs.take_write(2) == "big"
    jobs.jobs["big"].wrote(12, 2, is_behind=True)
    assert [jobs.take_write(12), jobs.take_write(12)] == ["small", "big"]


def test_a_table_that_has_all_waits_for_the_rest_of_its_interval() -> None:
    job = schedule()
    job.wrote(12, 2, is_behind=False)
    assert job.write_at_s == 32
    job.wrote(100, 2, is_behind=False)
    assert job.write_at_s == 100


def test_a_job_that_fails_pauses_longer_each_time_and_the_others_do_not() -> None:
    jobs = queue(bad=schedule(), good=schedule())
    bad = jobs.jobs["bad"]
    assert [bad.failed(0, StepFailure.TABLE) for _ in range(8)] == [5, 10, 20, 40, 80, 160, 300, 300]
    assert jobs.take_write(0) == "good"
    assert bad.failed(0, StepFailure.OUTAGE) == 1  # another kind of trouble
    bad.wrote(1, 0, is_behind=False)
    assert bad.failed(2, StepFailure.OUTAGE) == 1


def test_after_an_outage_no_job_waits_for_its_pause_to_end() -> None:
    jobs = queue(orders=schedule(), users=schedule(), broken=schedule())
    for _ in range(9):
        jobs.jobs["users"].failed(0, StepFailure.OUTAGE)
    jobs.jobs["broken"].failed(0, StepFailure.TABLE)
    jobs.retry_outages(1)
    assert (jobs.jobs["users"].write_at_s, jobs.jobs["broken"].write_at_s) == (1, 5)


def caught_up(**changes: bool) -> JobSchedule:
    job = schedule(**changes)  # type: ignore[arg-type]
    job.wrote(0, 0, is_behind=False)
    return job


def test_upkeep_comes_after_a_tenth_of_its_period_and_then_every_period() -> None:
    jobs = queue(orders=caught_up())
    assert jobs.take_upkeep(359) is None
    assert jobs.take_upkeep(360) == ("orders", Upkeep.COMPACT)
    jobs.jobs["orders"].upkept(400, succeeded=True)
    assert jobs.take_upkeep(3999) is None
    assert jobs.take_upkeep(4000) == ("orders", Upkeep.COMPACT)


def test_upkeep_waits_for_a_table_that_is_behind_but_not_for_ever() -> None:
    jobs = queue(orders=schedule())
    assert jobs.take_upkeep(3600) is None
    assert jobs.take_upkeep(360 + PATIENCE * 3600) == ("orders", Upkeep.COMPACT)


def test_upkeep_is_not_tried_on_a_table_in_trouble() -> None:
    job = caught_up()
    job.failed(0, StepFailure.TABLE)
    assert job.due_upkeep(1e9) is None


def test_one_table_is_in_upkeep_at_a_time() -> None:
    jobs = queue(orders=caught_up(), users=caught_up())
    assert jobs.take_upkeep(4000) == ("orders", Upkeep.COMPACT)
    assert jobs.take_upkeep(4000) is None
    jobs.jobs["orders"].upkept(4001, succeeded=True)
    assert jobs.take_upkeep(4001) == ("users", Upkeep.COMPACT)


@pytest.mark.parametrize(("is_by_key", "writes"), [(False, "orders"), (True, None)])
def test_only_upkeep_of_a_table_by_key_excludes_its_writer(is_by_key: bool, writes: str | None) -> None:
    jobs = queue(orders=caught_up(is_by_key=is_by_key))
    assert jobs.take_upkeep(4000) is not None
    assert jobs.take_write(4000) == writes
    jobs.jobs["orders"].upkept(4001, succeeded=True)
    jobs.jobs["orders"].is_writing = True
    assert (jobs.take_upkeep(1e6) is None) is is_by_key


def test_upkeep_that_fails_is_tried_again_sooner_than_in_a_period() -> None:
    jobs = queue(orders=caught_up())
    jobs.take_upkeep(4000)
    jobs.jobs["orders"].upkept(4000, succeeded=False)
    assert jobs.jobs["orders"].upkeep_at_s[Upkeep.COMPACT] == 4060


def test_upkeep_that_is_never_due_is_never_done() -> None:
    idle = UpkeepSpec(1, inf, inf)
    assert queue(orders=schedule(upkeep=idle)).take_upkeep(1e12) is None
    job = schedule(upkeep=idle)
    job.wrote(0, 0, is_behind=False)
    assert job.due_upkeep(1e12) is None
