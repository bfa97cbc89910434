"""A cluster whose brokers and clients speak SASL_SSL: certificates, users and settings for Kafka's brokers and ours.

Users log in by SCRAM. Their credentials are in ZooKeeper before the first broker starts, as brokers need them, too.
Each broker also has a PLAINTEXT listener, where everybody is ANONYMOUS and may do nothing.
"""

from pathlib import Path

from kazoo.client import KazooClient

from leadline.config.authorizer import ACL_AUTHORIZER
from leadline.security.scram_credentials import ScramMechanism, credential_of_password, credential_text
from leadline.security.secret import Secret
from tests.support.certificates import authority

SCRAM_MODULE = "org.apache.kafka.common.security.scram.ScramLoginModule"
BROKER, ADMIN, STRANGER = "broker", "admin", "stranger"  # the first two are super users
PASSWORDS = {BROKER: "broker-secret", ADMIN: "admin-secret", "alice": "alice-secret", STRANGER: "stranger-secret"}
ITERATIONS = 4096


class ClusterSecurity:
    def __init__(self, folder: Path, mechanism: ScramMechanism = ScramMechanism.SCRAM_SHA_512) -> None:
        self._folder, self._mechanism = folder, mechanism
        folder.mkdir(parents=True, exist_ok=True)
        self._trusted, self._key = folder / "ca.pem", folder / "broker.pem"
        self._trusted.write_text(authority().pem)
        authority().issue("broker").write(self._key)

    def settings(
        self, port: int = 0, secure_port: int = 0, user: str = BROKER, password: str | None = None
    ) -> dict[str, str]:
        """Of a broker that logs in to the others as this user. Port 0: any."""
        mechanism = self._mechanism.mechanism_name
        listener = f"listener.name.secure.{mechanism.lower()}"
        return {
            "listeners": f"PLAINTEXT://127.0.0.1:{port},SECURE://127.0.0.1:{secure_port}",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SECURE:SASL_SSL",
            "inter.broker.listener.name": "SECURE",
            "sasl.enabled.mechanisms": mechanism,
            "sasl.mechanism.inter.broker.protocol": mechanism,
            f"{listener}.sasl.jaas.config": (
                f'{SCRAM_MODULE} required username="{user}" password="{password or PASSWORDS[user]}";'
            ),
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(self._key),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(self._trusted),
            "authorizer.class.name": ACL_AUTHORIZER,
            "super.users": f"User:{BROKER};User:{ADMIN}",
        }

    def client(self, user: str = ADMIN) -> dict[str, str]:
        """Settings of librdkafka."""
        return {
            "security.protocol": "sasl_ssl",
            "sasl.mechanism": self._mechanism.mechanism_name,
            "sasl.username": user,
            "sasl.password": PASSWORDS[user],
            "ssl.ca.location": str(self._trusted),
        }

    def user_nodes(self) -> dict[str, bytes]:
        """The nodes of all users, by path."""
        nodes, name = {}, self._mechanism.mechanism_name
        for user, password in PASSWORDS.items():
            credential = credential_of_password(self._mechanism, Secret.of(password), user.encode(), ITERATIONS)
            config = f'{{"{name}":"{credential_text(credential)}"}}'
            nodes[f"/config/users/{user}"] = f'{{"version":1,"config":{config}}}'.encode()
        return nodes

    def create_users(self, connect: str) -> None:
        tree = KazooClient(connect)
        tree.start()
        try:
            for path, data in self.user_nodes().items():
                tree.create(path, data, makepath=True)
        finally:
            tree.stop()
            tree.close()
