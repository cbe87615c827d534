"""What is made of Kafka's errors: wait, or stop and say what to mend."""

from __future__ import annotations

import pytest
from confluent_kafka import KafkaError

from ingestor.errors import RefusedError, Unavailable
from ingestor.kafka.broker import kafka_failure


@pytest.mark.parametrize(
    ("code", "text"),
    [
        (KafkaError._SSL, "SSL handshake failed: error:0A000086:SSL routines::certificate verify failed"),
        (KafkaError._SSL, "SSL handshake failed: ssl/tls alert certificate required"),
        (KafkaError._AUTHENTICATION, "SASL authentication error: Authentication failed due to invalid credentials"),
        (KafkaError.SASL_AUTHENTICATION_FAILED, "Authentication failed"),
        (KafkaError.TOPIC_AUTHORIZATION_FAILED, "Broker: Topic authorization failed"),
    ],
)
def test_who_is_not_let_in_is_told_what_to_mend(code: int, text: str) -> None:
    """No retry will help."""
    found = kafka_failure(KafkaError(code, text), doing="asking")
    assert isinstance(found, RefusedError)
    assert text in found.message
    assert found.hint


@pytest.mark.parametrize(
    ("code", "text"),
    [
        (KafkaError._SSL, "SSL handshake failed: Disconnected: connecting to a PLAINTEXT broker listener?"),
        (KafkaError._SSL, "SSL transport error: Connection reset by peer"),
        (KafkaError._AUTHENTICATION, "SASL SCRAM-SHA-512 mechanism handshake failed: Connection timed out"),
        (KafkaError._TRANSPORT, "Connection refused"),
        (KafkaError._ALL_BROKERS_DOWN, "1/1 brokers are down"),
        (KafkaError.REQUEST_TIMED_OUT, "Broker: Request timed out"),
    ],
)
def test_a_connection_that_is_cut_off_is_made_again(code: int, text: str) -> None:
    """Also one that is cut off while keys are exchanged, as by every broker that stops."""
    assert isinstance(kafka_failure(KafkaError(code, text), doing="asking"), Unavailable)
