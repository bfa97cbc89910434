"""The session that jobs and tests get."""

import signal
import socket
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from types import FrameType

import pytest
from py4j.java_gateway import JavaGateway, JavaObject  # type: ignore[import-untyped]
from pyspark import util
from pyspark.accumulators import AccumulatorTCPServer
from pyspark.sql import SparkSession

from leadline.spark.session import TaskFailed, run_tasks, session
from tests.support.waiting import until

PATIENCE_S = 120
POLL_S = 0.01


def test_a_session_computes_in_utc(spark: SparkSession) -> None:
    assert spark.range(10).selectExpr("sum(id)").collect()[0][0] == 45
    assert spark.conf.get("spark.sql.session.timeZone") == "UTC"


def test_a_second_one_is_the_first(spark: SparkSession) -> None:
    assert session("another") is spark


def test_tasks_run_in_this_interpreter(spark: SparkSession) -> None:
    (executable,) = spark.sparkContext.parallelize([0], 1).map(lambda _: sys.executable).collect()
    assert executable == sys.executable


def test_results_that_cannot_be_fetched_fail_with_the_cause(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(_: object) -> None:
        raise ConnectionRefusedError("nobody is there")

    monkeypatch.setattr(util, "_create_local_socket", refused)
    with pytest.raises(TaskFailed, match="did not return the results of the tasks: nobody is there"):
        run_tasks(spark, str, [1, 2])
    monkeypatch.undo()
    assert run_tasks(spark, str, [1, 2]) == ["1", "2"]


@pytest.mark.parametrize(
    ("error", "is_shown"), [(EOFError(), False), (ConnectionResetError(), False), (ValueError(), True)]
)
def test_a_java_that_ends_leaves_no_traceback_of_its_accumulators(
    spark: SparkSession, capsys: pytest.CaptureFixture[str], error: Exception, is_shown: bool
) -> None:
    server = AccumulatorTCPServer.__new__(AccumulatorTCPServer)
    try:
        raise error
    except type(error):
        server.handle_error(socket.socket, ("127.0.0.1", 1))  # type: ignore[arg-type]
    assert ("Traceback" in capsys.readouterr().err) == is_shown


def call_until_interrupted(spark: SparkSession) -> None:
    """Wait in Java for a semaphore that is never released. A signal interrupts the call once Java waits."""
    gateway = gateway_of(spark)
    semaphore = gateway.jvm.java.util.concurrent.Semaphore(0)
    main = threading.main_thread().ident
    assert main is not None

    def signal_once_java_waits() -> None:
        wait_until_java_waits(semaphore)
        signal.pthread_kill(main, signal.SIGALRM)

    def interrupt(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    handler = signal.signal(signal.SIGALRM, interrupt)
    signaller = threading.Thread(target=signal_once_java_waits)
    try:
        signaller.start()
        with pytest.raises(KeyboardInterrupt):
            acquire(gateway, semaphore)
    finally:
        signaller.join()
        signal.signal(signal.SIGALRM, handler)
    semaphore.release()  # Java goes on, and reads what was sent last on the connection of the interrupted call
    spark.createDataFrame([], "n INT")  # makes the session active in the new thread that Java has for this one


def gateway_of(spark: SparkSession) -> JavaGateway:
    gateway = spark.sparkContext._gateway
    assert gateway is not None
    return gateway


def acquire(gateway: JavaGateway, semaphore: JavaObject) -> bool:
    is_acquired: bool = semaphore.tryAcquire(PATIENCE_S, gateway.jvm.java.util.concurrent.TimeUnit.SECONDS)
    return is_acquired


def wait_until_java_waits(semaphore: JavaObject) -> None:
    until(semaphore.hasQueuedThreads, "Java waits", PATIENCE_S)


def test_an_interrupted_call_is_not_logged_with_a_traceback(
    spark: SparkSession, caplog: pytest.LogCaptureFixture
) -> None:
    call_until_interrupted(spark)
    assert caplog.records == []
    assert spark.range(3).count() == 3


def test_an_interrupted_call_does_not_end_the_calls_of_other_threads(spark: SparkSession) -> None:
    gateway = gateway_of(spark)
    semaphore = gateway.jvm.java.util.concurrent.Semaphore(0)
    with ThreadPoolExecutor(2) as pool:
        other_call = pool.submit(acquire, gateway, semaphore)
        wait_until_java_waits(semaphore)
        assert pool.submit(semaphore.availablePermits).result() == 0  # leaves a connection that no call uses
        call_until_interrupted(spark)
        assert spark.range(3).count() == 3
        semaphore.release()
        assert other_call.result(PATIENCE_S)
