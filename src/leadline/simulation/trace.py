"""What happened in a simulation, as a story: faults, decisions of controllers and leaders, and the lines of code.

Brokers log their decisions. A trace keeps these lines with the process that wrote them, the virtual
time and the place in the code. Of writes to the tree it keeps the place that requested them.
"""

import logging
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from types import FrameType
from typing import NamedTuple

import leadline
from leadline.coordination import znodes
from leadline.coordination.tree import Create, Operation, SetData
from leadline.model import Offset, TopicPartition
from leadline.simulation.invariants import partition_of_state
from leadline.simulation.simulation import Simulation
from leadline.simulation.virtual_loop import CURRENT

_SOURCE = next(iter(leadline.__path__)) + "/"
_BELOW = ("simulation/", "coordination/")  # they carry out decisions of others
WIDTH = 118
MOST_LINES = 60


class TraceEvent(NamedTuple):
    at_s: float
    process: str
    text: str
    where: str = ""  # file:line of the code, as far as it is known
    tp: TopicPartition | None = None
    offset: Offset | None = None  # that was acknowledged
    is_warning: bool = False
    is_detail: bool = False


class Trace(logging.Handler):
    """The trace of one simulation that is about to run."""

    def __init__(self, simulation: Simulation) -> None:
        super().__init__(logging.DEBUG)
        self.events: list[TraceEvent] = []
        self._simulation, self._loop = simulation, simulation.cluster.loop
        self._places: dict[int, str] = {}  # of requests to the tree, by identity
        ensemble = simulation.cluster.ensemble
        self._after_write, ensemble.on_operations = ensemble.on_operations, self._written
        ensemble.on_request = self._requested
        self._after_acknowledgement = simulation.history.on_acknowledged
        simulation.history.on_acknowledged = self._acknowledged
        simulation.on_line = self._add_line

    def _add(self, process: str, text: str, **rest: object) -> None:
        self.events.append(TraceEvent(self._loop.time(), process, text, **rest))  # type: ignore[arg-type]

    def _add_line(self, line: str) -> None:
        process, _, text = line.partition(" ")
        if process.rstrip(":").startswith("broker-"):
            self._add(process.rstrip(":"), text)
        else:
            self._add("", line)

    def emit(self, record: logging.LogRecord) -> None:
        process, message = CURRENT.get(), record.getMessage()
        if process is not None and record.name.startswith("leadline"):
            tps = (tp for tp in self._simulation.all_partitions if re.search(rf"\b{re.escape(str(tp))}\b", message))
            where = _place(record.pathname, record.lineno, sys._getframe())
            name, level = process.name.partition(".")[0], record.levelno
            is_warning, is_detail = level >= logging.WARNING, level <= logging.DEBUG
            self._add(name, message, where=where, tp=next(tps, None), is_warning=is_warning, is_detail=is_detail)

    def _requested(self, operations: Sequence[Operation]) -> None:
        frame: FrameType | None = sys._getframe()
        while frame is not None and (not (path := _relative(frame)) or path.startswith(_BELOW)):
            frame = frame.f_back
        if frame is not None:
            self._places[id(operations)] = f"{_relative(frame)}:{frame.f_lineno}"

    def _written(self, operations: Sequence[Operation], host: str) -> None:
        where = self._places.pop(id(operations), "")
        for operation in operations:
            if not isinstance(operation, Create | SetData):
                continue
            if operation.path == znodes.CONTROLLER:
                self._add(host, "is the controller", where=where, is_warning=True)
            elif (tp := partition_of_state(operation.path)) is not None:
                state = znodes.decode_state(tp, operation.data)
                leader = "nobody" if state.leader < 0 else f"broker-{state.leader}"
                text = f"decides: {leader} leads {tp} in epoch {state.leader_epoch} with ISR {list(state.isr)}"
                self._add(host, text, where=where, tp=tp)
        self._after_write(operations, host)

    def _acknowledged(self, tp: TopicPartition, offset: Offset) -> None:
        process = CURRENT.get()
        self._add("" if process is None else process.name, f"{tp} @ {offset} is acknowledged", tp=tp, offset=offset)
        self._after_acknowledgement(tp, offset)

    def attach(self) -> None:
        logger = logging.getLogger("leadline")
        logger.setLevel(logging.DEBUG)
        logger.propagate = False
        logger.addHandler(self)

    def detach(self) -> None:
        logging.getLogger("leadline").removeHandler(self)


def _relative(frame: FrameType) -> str:
    """The path of a frame below the source of the product; empty elsewhere."""
    path = frame.f_code.co_filename
    return path.removeprefix(_SOURCE) if path.startswith(_SOURCE) else ""


def _place(path: str, line: int, frame: FrameType | None) -> str:
    """The place of a log line, and the place in another package that caused it."""
    own = path.removeprefix(_SOURCE)
    package = own.partition("/")[0]
    while frame is not None:
        other = _relative(frame)
        if other and not other.startswith(("simulation/", "runtime/", f"{package}/")):
            return f"{own}:{line}, for {other}:{frame.f_lineno}"
        frame = frame.f_back
    return f"{own}:{line}"


def story_of(events: Iterable[TraceEvent], violation: str) -> Iterator[str]:
    """The lines of the trace: those about the partition of the violation, and those about the whole cluster."""
    relevant = list(_relevant(list(events), violation))
    story = _shortened(relevant)
    if len(story) < len(relevant):
        yield f"{'...':>10}  {len(relevant) - len(story)} other lines"
    for event in story:
        line = f"{event.at_s:8.3f} s  {event.process:<12} {event.text}"
        place = f"[{event.where}]" if event.where else ""
        if len(line) + len(place) + 2 <= WIDTH:
            yield f"{line}  {place}".rstrip()
        else:
            yield line
            yield f"{'':25}{place}"


def _shortened(events: Sequence[TraceEvent]) -> Sequence[TraceEvent]:
    """At most MOST_LINES of them: details are left out first, then the earliest decisions, and faults at last."""
    for is_dispensable in (lambda e: e.is_detail, lambda e: e.where, lambda e: True):
        excess = len(events) - MOST_LINES
        dispensable = [n for n, event in enumerate(events) if is_dispensable(event)]
        left_out = set(dispensable[: max(excess, 0)])
        events = [event for n, event in enumerate(events) if n not in left_out]
    return events


def _relevant(events: Sequence[TraceEvent], violation: str) -> Iterator[TraceEvent]:
    names = sorted({str(event.tp) for event in events if event.tp is not None})
    name = next((name for name in names if re.search(rf"\b{re.escape(name)}\b", violation)), None)
    acknowledgement = None if name is None else _acknowledgement(events, name, violation)
    last_text = ""
    for event in events:
        if event.offset is not None:
            is_shown = event is acknowledgement
        elif event.tp is not None:
            is_shown = str(event.tp) == name
        else:
            is_shown = not event.where or event.is_warning
        if is_shown and f"{event.process} {event.text}" != last_text:
            last_text = f"{event.process} {event.text}"
            yield event


def _acknowledgement(events: Sequence[TraceEvent], name: str, violation: str) -> TraceEvent | None:
    """Of the batch with the very record of the violation; the last one of the partition if no record is named."""
    acknowledged = [event for event in events if event.offset is not None and str(event.tp) == name]
    record = re.search(rf"\b{re.escape(name)}\b[^@]* @ (\d+)", violation)
    if record is None:
        return acknowledged[-1] if acknowledged else None
    offset = int(record.group(1))
    return next((event for event in acknowledged if event.offset is not None and event.offset >= offset), None)
