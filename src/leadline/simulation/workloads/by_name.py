"""The workload of a client in a scenario, by its name."""

from leadline.simulation.client import SimulatedClient
from leadline.simulation.workloads.administrator import Administrator
from leadline.simulation.workloads.group_member import Member
from leadline.simulation.workloads.idempotent_producer import IdempotentProducer
from leadline.simulation.workloads.plain_producer import PlainProducer
from leadline.simulation.workloads.reader import CommittedReader, PollingReader
from leadline.simulation.workloads.transactional_producer import TransactionalProducer
from leadline.simulation.workloads.transforming_producer import TransformingProducer
from leadline.simulation.workloads.workload import Workload, WorkloadContext

KINDS: tuple[type[Workload], ...] = (
    IdempotentProducer,
    PlainProducer,
    TransactionalProducer,
    TransformingProducer,
    PollingReader,
    CommittedReader,
    Member,
    Administrator,
)


def workload_of(client: SimulatedClient, world: WorkloadContext) -> Workload:
    (kind,) = (kind for kind in KINDS if client.name.startswith(f"{kind.prefix}-"))
    return kind(client, world)
