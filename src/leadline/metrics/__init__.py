"""Metrics and health of a broker, or of a job, over HTTP: /metrics, /healthz and /readyz.

`families` says what a metric is, and `exposition` how it is written. A collector reads parts of the broker when
it is scraped, in steps. `metrics_server` is the shell.
"""
