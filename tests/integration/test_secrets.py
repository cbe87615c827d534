"""No secret of the configuration comes out anywhere, and no name that comes in does any harm."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from typing import TYPE_CHECKING

import pytest
import yaml

from ingestor.config.load import load
from tests.support.judge.history import check_table, read_topics
from tests.support.kafka import topics
from tests.support.kafka.topics import Record
from tests.support.process.command import Command, Ended, ingestor
from tests.support.process.server import free_ports
from tests.support.stores.faultproxy import Fault, FaultProxy, Kind
from tests.support.stores.fixtures import moto, versity  # noqa: F401 - fixtures

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from tests.support.kafka.cluster import Cluster
    from tests.support.process.ingestors import Deploy
    from tests.support.stores.stores import Store

pytestmark = pytest.mark.integration

SECRETS = {
    "sasl": "s3ntinel-sasl-password",
    "key": "s3ntinel-key-password",
    "store": "s3ntinel/store+secret",
    "token": "s3ntinel-session-token",
}
COMMANDS = (
    ("run", "--once"),
    ("check",),
    ("offsets", "--json"),
    ("audit", "--against-kafka"),
    ("locate", "t", "0", "0"),
)
PAGES = ("", "livez", "readyz", "metrics", "api/status", "actuator/health", "actuator/metrics", "actuator/prometheus")


def write(
    folder: Path, kafka: str, topic: str, url: str, options: dict[str, str], *, form: str, **more: object
) -> Path:
    """Write a configuration with a secret wherever one can be; a part of them comes from the environment."""
    document = {
        "app_id": "shop",
        "kafka": {
            "bootstrap.servers": kafka,
            "group.id": topic,
            "sasl.password": "${SENTINEL_SASL}",
            "ssl.key.password": SECRETS["key"],
        },
        "storage_options": {
            **options,
            "AWS_SECRET_ACCESS_KEY": SECRETS["store"],
            "AWS_SESSION_TOKEN": "${SENTINEL_TOKEN}",
        },
        "routes": {"events": {"topics": [topic], "table": url, "flush": {"seconds": 0.5}}},
        "log": {"format": form, "level": "DEBUG"},
        "http": None,
        **more,
    }
    path = folder / f"{form}.yaml"
    path.write_text(yaml.safe_dump(document))
    return path


ENVIRON = {"SENTINEL_SASL": SECRETS["sasl"], "SENTINEL_TOKEN": SECRETS["token"]}


def keeps_quiet(*texts: str) -> None:
    for text in texts:
        told = [name for name, secret in SECRETS.items() if secret in text]
        assert not told, f"{told} in {text}"


def do(command: Sequence[str], config: Path) -> Ended:
    done = ingestor(command[0], config, *command[1:], environ=ENVIRON)
    keeps_quiet(done.stderr, done.stdout)
    return done


@pytest.mark.parametrize("form", ["console", "json"])
def test_no_command_tells_a_secret(kafka: Cluster, moto: Store, tmp_path: Path, form: str) -> None:  # noqa: F811
    """At level DEBUG, where most is said."""
    topic = topics.create(kafka.bootstrap)
    topics.produce(kafka.bootstrap, topic, [b"v"])
    url = moto.url(moto.make_bucket())
    config = write(tmp_path, kafka.bootstrap, topic, url, moto.storage_options, form=form)
    for command in COMMANDS:
        done = do([word if word != "t" else topic for word in command], config)
        assert done.code == 0, done.stderr


def test_no_failure_tells_a_secret(kafka: Cluster, versity: Store, tmp_path: Path) -> None:  # noqa: F811
    """A store that refuses the credentials, one that denies access, one that is not there; a broker likewise."""
    topic = topics.create(kafka.bootstrap)
    topics.produce(kafka.bootstrap, topic, [b"v"])
    url = versity.url(versity.make_bucket())
    nobody = f"127.0.0.1:{free_ports(1)[0]}"
    with FaultProxy(versity.port) as proxy:
        proxy.on("*", "", Fault(Kind.STATUS_BEFORE, status=403), times=None)
        stores = {"wrong secret": versity.endpoint, "denied": proxy.url}
        for name, endpoint in stores.items():
            config = write(tmp_path, kafka.bootstrap, topic, url, versity.options(endpoint), form="console")
            for command in COMMANDS:
                done = do([word if word != "t" else topic for word in command], config)
                assert done.code == 4, (name, command, done.stderr)
    for broker, endpoint in ((kafka.bootstrap, f"http://{nobody}"), (nobody, versity.endpoint)):
        config = write(tmp_path, broker, topic, url, versity.options(endpoint), form="console")
        assert do(["check"], config).code == 4


def test_what_people_see_of_a_running_process_tells_no_secret(
    kafka: Cluster,
    moto: Store,  # noqa: F811
    tmp_path: Path,
) -> None:
    """Every page, while all is well and while the store denies access to it."""
    topic = topics.create(kafka.bootstrap)
    url = moto.url(moto.make_bucket())
    (port,) = free_ports(1)
    with FaultProxy(moto.port) as proxy:
        options = moto.options(proxy.url)
        config = write(tmp_path, kafka.bootstrap, topic, url, options, form="json", http={"port": port})
        with Command("run", config, environ=ENVIRON) as running:
            topics.produce(kafka.bootstrap, topic, [b"v"])
            running.wait_for('"event": "committed"')
            keeps_quiet(*(page(port, name) for name in PAGES))
            proxy.on("*", "", Fault(Kind.STATUS_BEFORE, status=503), times=None)
            topics.produce(kafka.bootstrap, topic, [b"v"])
            running.wait_for('"event": "waiting"')
            keeps_quiet(*(page(port, name) for name in PAGES))
            proxy.clear()
            proxy.on("*", "", Fault(Kind.STATUS_BEFORE, status=403), times=None)
            ended = running.end()
    assert ended.code == 4
    keeps_quiet(ended.stderr, ended.stdout)


def page(port: int, name: str) -> str:
    """Return a page with its headers, whatever its status."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/{name}", timeout=10) as answer:
            return f"{answer.headers}{answer.read().decode()}"
    except urllib.error.HTTPError as error:
        return f"{error.headers}{error.read().decode()}"


def test_settings_that_are_shown_hide_their_secrets(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """In a debugger, in a traceback with values, in a message."""
    for name, value in ENVIRON.items():
        monkeypatch.setenv(name, value)
    loaded = load(write(tmp_path, "kafka:9092", "t", "s3://bucket/table", {}, form="json"))
    assert loaded.kafka["sasl.password"] == SECRETS["sasl"]
    keeps_quiet(repr(loaded), str(loaded), f"{loaded!r}", repr(loaded.kafka), repr(loaded.storage_options))


def test_hostile_names_do_no_harm(kafka: Cluster, deploy: Deploy) -> None:
    """Names that climb out of folders, begin lines of their own, or paint terminals are data, and land as such."""
    topic = topics.create(kafka.bootstrap, topics.unique("..-..-etc-passwd-"))
    hostile = [
        "../../../../etc/passwd",
        'x\n{"level": "error", "event": "forged"}',
        "\x1b[2J\x1b[31m",
        "%2e%2e%2f",
        "\x00",
    ]
    records = [Record(value=name.encode(), key=name.encode(), headers=[(name, name.encode())]) for name in hostile]
    topics.produce(kafka.bootstrap, topic, records)
    deployment = deploy(topic, extra_columns=["key", "headers"], partition_by=["ingest_date"])
    before = {path for path in deployment.folder.rglob("*") if path.is_file()}
    ingestor_ = deployment.once()
    check_table(read_topics(kafka.bootstrap, [topic]), deployment.table(), deployment.app_id)
    made = {path for path in deployment.folder.rglob("*") if path.is_file()} - before
    outside = {path.name for path in made if deployment.table() not in path.parents}
    assert outside == {"config-1.yaml", "ingestor-1.log"}
    lines = ingestor_.log.splitlines()
    assert not [line for line in lines if "forged" in line or "passwd/" in line or "\x1b" in line]
    assert all(isinstance(json.loads(line), dict) for line in lines if not line.startswith("ingestor: "))
