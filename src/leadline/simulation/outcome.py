"""The outcome of one simulation."""

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class SimulationOutcome:
    seed: int
    violations: list[str]
    story: list[str]  # what happened, with its virtual time
    virtual_s: float
    steps: int  # callbacks of all processes
    faults: dict[str, int]  # by kind
    acknowledged: int  # records
    attempts: int  # records that producers sent
    digest: str  # of all steps and answers: the same for the same seed
    errors: dict[str, int]  # answers that were not a success, by name
    scenario: str = ""  # the smallest one that still breaks the first law, as JSON, if it was shrunk
    smallest: list[str] = field(default_factory=list)  # how that one went
