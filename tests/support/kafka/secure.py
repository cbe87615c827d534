"""A broker behind TLS that asks who one is: certificates of our own authority, one user with a password (SCRAM)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import trustme
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._scram import ScramCredentialInfo, ScramMechanism, UserScramCredentialUpsertion
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)

from tests.support.kafka.cluster import Cluster

if TYPE_CHECKING:
    from pathlib import Path

USER = "orders"
PASSWORD = "pa55-of-orders"
MECHANISM = "SCRAM-SHA-512"
_SECONDS_MAX = 30


@dataclass
class SecureCluster:
    """One broker with a listener for passwords and one for client certificates, both behind TLS."""

    folder: Path
    authority: trustme.CA = field(default_factory=trustme.CA)

    def __post_init__(self) -> None:
        self.authority.cert_pem.write_to_path(str(self.folder / "authority.pem"))
        broker = self.write_identity(self.authority, "broker", "127.0.0.1")
        listener = {"ssl.keystore.type": "PEM", "ssl.keystore.location": broker, "ssl.truststore.type": "PEM"}
        listener["ssl.truststore.location"] = self.folder / "authority.pem"
        config: dict[str, object] = {
            f"listener.name.{name}.{key}": value
            for name in ("password", "certificate")
            for key, value in listener.items()
        }
        config["listener.name.certificate.ssl.client.auth"] = "required"
        config["sasl.enabled.mechanisms"] = MECHANISM
        config[f"listener.name.password.{MECHANISM.lower()}.sasl.jaas.config"] = (
            "org.apache.kafka.common.security.scram.ScramLoginModule required;"
        )
        self.cluster = Cluster(config=config, listeners={"PASSWORD": "SASL_SSL", "CERTIFICATE": "SSL"})

    def start(self) -> None:
        """Start the broker and let it know its user."""
        self.cluster.start()
        admin = AdminClient({"bootstrap.servers": self.cluster.bootstrap})
        info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4096)
        change = UserScramCredentialUpsertion(USER, info, PASSWORD.encode())
        admin.alter_user_scram_credentials([change])[USER].result(_SECONDS_MAX)

    def write_identity(self, authority: trustme.CA, name: str, host: str) -> Path:
        """Write a certificate and its key, in the one form that Kafka reads; return the file."""
        issued = authority.issue_cert(host)
        key = load_pem_private_key(issued.private_key_pem.bytes(), None)
        pem = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        path = self.folder / f"{name}.pem"
        path.write_bytes(pem + b"".join(blob.bytes() for blob in issued.cert_chain_pems))
        return path

    def by_password(self, **changes: str) -> dict[str, object]:
        """Return the settings of a client that has the password."""
        settings = {
            "bootstrap.servers": self.cluster.address("PASSWORD"),
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": MECHANISM,
            "sasl.username": USER,
            "sasl.password": PASSWORD,
            "ssl.ca.location": str(self.folder / "authority.pem"),
        }
        return {**settings, **{name.replace("_", "."): value for name, value in changes.items()}}

    def by_certificate(self, authority: trustme.CA | None = None) -> dict[str, object]:
        """Return the settings of a client with a certificate, by default of the authority that the broker trusts."""
        path = str(self.write_identity(authority or self.authority, "client", "client.invalid"))
        return {
            "bootstrap.servers": self.cluster.address("CERTIFICATE"),
            "security.protocol": "SSL",
            "ssl.ca.location": str(self.folder / "authority.pem"),
            "ssl.certificate.location": path,
            "ssl.key.location": path,
        }
