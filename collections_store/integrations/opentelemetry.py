"""OpenTelemetry: a span and a measurement of each operation, by the semantic conventions for database clients.

The extra `opentelemetry` is the API alone. The program chooses the SDK and the exporters.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib.metadata import version
from typing import Any, Final

from .. import MissingExtra
from ..options import read_url
from ..results import OperationRecord

try:
    from opentelemetry import context, metrics, trace
    from opentelemetry.trace import SpanKind, StatusCode
except ImportError as error:
    raise MissingExtra("opentelemetry-api", "opentelemetry") from error

SCHEMA: Final = "https://opentelemetry.io/schemas/1.34.0"
"""The version of the conventions."""
BUCKETS: Final = (0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1, 5, 10)
"""Seconds, as the conventions advise."""


def instrument(
    url: str | None = None,
    *,
    tracer_provider: trace.TracerProvider | None = None,
    meter_provider: metrics.MeterProvider | None = None,
) -> Callable[[OperationRecord], None]:
    """Return a hook for the option `on_operation`: a span and a measured time for each operation.

    The parent of a span is the span of the caller, in an `AsyncStore` too. With the store's `url`, spans name the database
    and the server. The default providers are the global providers. Spans have no bodies, and no values of filters.

    Raise `InvalidUrl`.

    >>> from collections_store import Store
    >>> with Store("sqlite://", on_operation=instrument("sqlite://")) as store:
    ...     store["cities"].put("berlin", {"country": "de"})
    1
    """
    parts = __name__, version("collections-store")
    tracer = trace.get_tracer(*parts, tracer_provider, SCHEMA)
    duration = metrics.get_meter(*parts, meter_provider, SCHEMA).create_histogram(
        "db.client.operation.duration",
        unit="s",
        description="Duration of database client operations.",
        explicit_bucket_boundaries_advisory=BUCKETS,
    )
    server = {} if url is None else _server(url)

    def report(record: OperationRecord) -> None:
        shared = server | _shared(record)
        parent = None if record.context is None else record.context.copy().run(context.get_current)
        span = tracer.start_span(
            shared["db.query.summary"],
            parent,
            SpanKind.CLIENT,
            shared | _details(record),
            start_time=record.started,
        )
        if record.error is not None:
            span.set_status(StatusCode.ERROR)  # the text of an error may have values of a body
        span.end(record.started + round(record.seconds * 1e9))
        duration.record(record.seconds, shared, trace.set_span_in_context(span, parent))

    return report


def _server(text: str) -> dict[str, Any]:
    """Return the attributes of a database; several hosts are no address."""
    url = read_url(text)
    found: dict[str, Any] = {"db.namespace": url.database or ":memory:"}
    if url.host is not None:
        found |= {"server.address": url.host, "server.port": url.port or 5432}
    return found


def _shared(record: OperationRecord) -> dict[str, Any]:
    """Return the attributes of spans and measurements: attributes with few values."""
    found = {
        "db.system.name": record.database,
        "db.operation.name": record.name,
        "db.query.summary": f"{record.name} {record.collection or ''}".rstrip(),
    }
    if record.collection:
        found["db.collection.name"] = record.collection
    if record.error is not None:
        found["error.type"] = type(record.error).__qualname__
    return found


def _details(record: OperationRecord) -> dict[str, Any]:
    found: dict[str, Any] = {"collections_store.consistency": record.consistency}
    if record.shape is not None:
        found["db.query.text"] = record.shape
    if record.rows is not None and not record.writes:
        found["db.response.returned_rows"] = record.rows
    elif record.rows is not None and record.rows > 1:
        found["db.operation.batch.size"] = record.rows
    for name in ("retries", "waited", "in_transaction", "comment"):
        if value := getattr(record, name):
            found[f"collections_store.{name}"] = value
    if record.group > 1:
        found["collections_store.group"] = record.group
    return found
