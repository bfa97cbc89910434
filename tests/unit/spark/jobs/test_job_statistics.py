"""What a job counts, and how far its table is behind."""

from leadline.spark.jobs.job_statistics import JobStatistics


def job() -> JobStatistics:
    return JobStatistics("orders", "/lake/orders", started_ms=1_000)


def test_a_table_that_has_all_records_has_no_lag() -> None:
    orders = job()
    orders.committed(10, 100, 1, lag_records=0, newest_ms=500, now_ms=2_000)
    assert (orders.commits, orders.records, orders.size, orders.dead) == (1, 10, 100, 1)
    assert orders.lag_s(9_000) == 0


def test_the_lag_in_seconds_is_the_age_of_the_newest_record_that_the_table_has() -> None:
    orders = job()
    orders.planned(50)
    assert orders.lag_s(4_000) == 3  # nothing is in the table: since the start
    orders.committed(10, 100, 0, lag_records=40, newest_ms=3_500, now_ms=4_000)
    assert orders.lag_s(5_000) == 1.5
    orders.checked(0, 6_000)
    orders.planned(5)
    assert orders.lag_s(8_000) == 2


def test_the_lag_grows_while_nothing_can_be_read_or_written() -> None:
    orders = job()
    orders.checked(0, 2_000)
    orders.failed("cannot reach localhost:9092")
    assert (orders.lag_s(5_000), orders.failures) == (3, 1)
    orders.checked(0, 6_000)
    assert (orders.lag_s(7_000), orders.trouble) == (0, "")
