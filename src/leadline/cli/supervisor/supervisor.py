"""The supervisor of several brokers: it reports what happens to their processes, and does what Supervision decides.

What a person reads, and what more happens when all serve, is up to the command.
"""

import asyncio
import signal
import time
from collections.abc import Coroutine, Sequence
from contextlib import closing

from leadline.cli.signals import ending_signals
from leadline.cli.supervisor.broker_process import BrokerProcess
from leadline.cli.supervisor.supervision import Action, ProcessState, Supervision, SupervisionPolicy, Verb
from leadline.runtime.notify_socket import NOTIFY_SOCKET, NotifyReceiver
from leadline.runtime.parent_pipe import ParentPipe


class Supervisor:
    """`await run()` starts the brokers and returns the exit code when all have ended.

    A command overrides the methods below "What a command does".
    """

    def __init__(self, members: Sequence[BrokerProcess], policy: SupervisionPolicy) -> None:
        self.members = {member.id: member for member in members}
        self.supervision = Supervision(list(self.members), policy)
        self.stopped_s = 0.0  # when the stop began
        self._tasks: set[asyncio.Task[None]] = set()
        self._timer: asyncio.TimerHandle | None = None

    async def run(self) -> int:
        loop = asyncio.get_running_loop()
        self._finished: asyncio.Future[None] = loop.create_future()
        for number in ending_signals():
            loop.add_signal_handler(number, self._stop_on, number)
        with closing(NotifyReceiver()) as self._notices, closing(ParentPipe()) as self._pipe:
            loop.add_reader(self._notices.fileno(), self._read_notices)
            try:
                self._carry_out(self.supervision.begin())
                await self._finished
            finally:
                loop.remove_reader(self._notices.fileno())
                for task in self._tasks:
                    task.cancel()
                await asyncio.gather(*self._tasks, return_exceptions=True)
        self.finished()
        return self.supervision.exit_code

    # Events

    def _stop_on(self, number: signal.Signals) -> None:
        self.stopping(number, self.supervision.stop_requests + 1)
        self.stop()

    def stop(self) -> None:
        self.stopped_s = self.stopped_s or time.monotonic()
        self._carry_out(self.supervision.stop(time.monotonic()))

    def _read_notices(self) -> None:
        for pid, notice in self._notices.notices():
            member = next((member for member in self.members.values() if member.pid == pid), None)
            if member is None:
                continue
            if notice.get("READY") == "1":
                actions = self.supervision.serves(member.id, time.monotonic())
                self.broker_serves(member)
                self._carry_out(actions)
            else:
                self.broker_notified(member, notice)

    def ended(self, member: BrokerProcess, *, is_clean: bool) -> None:
        is_stopping = self.supervision.brokers[member.id].state is ProcessState.STOPPING
        actions = self.supervision.ended(member.id, time.monotonic(), is_clean=is_clean)
        if is_stopping:
            self.broker_stopped(member)
        else:
            self.broker_ended(member)
        self._carry_out(actions)

    def _pass_time(self) -> None:
        self._carry_out(self.supervision.pass_time(time.monotonic()))

    # Actions

    def _carry_out(self, actions: Sequence[Action]) -> None:
        for verb, broker in actions:
            match verb:
                case Verb.START:
                    self.members[broker].reset()
                    self.run_task(self._run_process(self.members[broker]))
                case Verb.TERMINATE:
                    self.members[broker].send(signal.SIGTERM)
                case Verb.KILL:
                    self.members[broker].send(signal.SIGKILL)
                case Verb.ANNOUNCE:
                    self.run_task(self.all_serve())
                case Verb.FINISH if not self._finished.done():
                    self._finished.set_result(None)
        self._set_timer()

    def _set_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        due_s = self.supervision.next_due_s
        wait_s = 0.0 if due_s is None else max(due_s - time.monotonic(), 0)
        self._timer = None if due_s is None else asyncio.get_running_loop().call_later(wait_s, self._pass_time)

    async def _run_process(self, member: BrokerProcess) -> None:
        environment = {**self._pipe.environment, NOTIFY_SOCKET: self._notices.name}
        await member.run(environment, [self._pipe.reading])
        self._read_notices()  # output from before it ended
        self.ended(member, is_clean=member.ended_cleanly)

    def run_task(self, work: Coroutine[object, object, None]) -> None:
        """Run it beside the others. What it raises ends the supervisor."""
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._task_done)

    def _task_done(self, task: "asyncio.Task[None]") -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None and not self._finished.done():
            self._finished.set_exception(error)

    # What a command does

    async def all_serve(self) -> None:
        """All brokers serve for the first time."""

    def broker_serves(self, member: BrokerProcess) -> None:
        pass

    def broker_notified(self, member: BrokerProcess, notice: dict[str, str]) -> None:
        """It sent a notice other than READY."""

    def broker_ended(self, member: BrokerProcess) -> None:
        """It ended, and was not asked to."""

    def broker_stopped(self, member: BrokerProcess) -> None:
        """It ended, as it was asked to."""

    def stopping(self, number: signal.Signals, requests: int) -> None:
        """A signal asks to stop, for the first, second or third time."""

    def finished(self) -> None:
        """All brokers have ended."""
