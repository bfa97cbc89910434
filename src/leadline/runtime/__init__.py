"""The floor under the log: event loop, scheduling, deferred completions, timers; the real ports."""
