"""An example for Airflow: topics become tables every hour, and each table is compared with its topic once a day.

`--once` writes what is there and exits: 0 if every table has it, 1 if one does not, after the others were written. A
task that is killed or tried again does no harm: a table holds its own position. Runs must not overlap, since a table
has one writer: max_active_runs=1, and a second one would be refused anyway.

For a lag of seconds instead of an hour, run `leadline pipeline run` without --once as a service.
"""

from datetime import datetime, timedelta

from airflow import DAG
from airflow.providers.standard.operators.bash import BashOperator

JOBS = "/etc/leadline/jobs.toml"
TABLES = ("/lake/orders", "/lake/users")

with DAG(
    "leadline_tables",
    schedule="@hourly",
    start_date=datetime(2026, 1, 1),
    catchup=False,
    max_active_runs=1,
    default_args={"retries": 3, "retry_delay": timedelta(minutes=2)},
):
    BashOperator(
        task_id="write",
        bash_command=f"leadline pipeline run {JOBS} --once",
        execution_timeout=timedelta(minutes=55),
    )

with DAG(
    "leadline_verify",
    schedule="@daily",
    start_date=datetime(2026, 1, 1),
    catchup=False,
    max_active_runs=1,
):
    for table in TABLES:
        BashOperator(task_id=f"verify_{table.rpartition('/')[2]}", bash_command=f"leadline pipeline verify {table}")
