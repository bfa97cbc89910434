"""The floor under the log: event loop, scheduling, deferred completions, timers; the ports and what they really are."""
