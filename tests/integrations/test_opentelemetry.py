"""Spans and measurements of operations, as OpenTelemetry's SDK exports them."""

import asyncio
import os
import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest
from backends import Backend, unwrap
from postgres_cluster import wait_until

from collections_store import AsyncStore, DuplicateKey, InvalidUrl, MissingExtra, Store

if not os.environ.get("CI"):
    pytest.importorskip("opentelemetry.sdk", reason="opentelemetry-sdk is not installed: see dev")

from opentelemetry import trace
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from collections_store.integrations.opentelemetry import BUCKETS, instrument


@dataclass
class Exported:
    """Providers of a test, and what they have exported."""

    spans: InMemorySpanExporter = field(default_factory=InMemorySpanExporter)
    metrics: InMemoryMetricReader = field(default_factory=InMemoryMetricReader)

    def __post_init__(self) -> None:
        self.tracers = TracerProvider()
        self.tracers.add_span_processor(SimpleSpanProcessor(self.spans))
        self.meters = MeterProvider([self.metrics])
        self.tracer = self.tracers.get_tracer("tests")

    def hook(self, url: str | None = None) -> Any:
        return instrument(url, tracer_provider=self.tracers, meter_provider=self.meters)

    def taken(self, *names: str) -> list[ReadableSpan]:
        """Return the spans since the last call, once there are some of these names: a worker thread may report an operation
        after its caller goes on.
        """

        def are_there() -> bool:
            found = Counter(each.name for each in self.spans.get_finished_spans())
            return found >= Counter(names)

        wait_until(are_there, f"the spans {names}")
        found = list(self.spans.get_finished_spans())
        self.spans.clear()
        return found

    def points(self) -> list[Any]:
        """Return the data points of the one metric."""
        data = self.metrics.get_metrics_data()
        assert data is not None
        [resource] = data.resource_metrics
        [scope] = resource.scope_metrics
        [metric] = scope.metrics
        assert (metric.name, metric.unit) == ("db.client.operation.duration", "s")
        return list(metric.data.data_points)


@pytest.fixture
def exported() -> Iterator[Exported]:
    found = Exported()
    yield found
    found.tracers.shutdown()
    found.meters.shutdown()


def named(spans: list[ReadableSpan], name: str) -> ReadableSpan:
    [found] = [each for each in spans if each.name == name]
    return found


def attributes(span: ReadableSpan) -> dict[str, Any]:
    return dict(span.attributes or {})


@pytest.mark.each_backend
def test_a_span_follows_the_conventions(
    open_store: Any, backend: Backend, exported: Exported
) -> None:
    store = open_store(on_operation=exported.hook())
    people = store["people"]
    people.put("ada", {"age": 36})
    people.put("bob", {"age": 40})
    exported.taken("put people", "put people")
    before = time.time_ns()
    assert len(people.find({"age": {"$gt": 39}})) == 1
    assert people.get("ada") == {"age": 36}
    spans = exported.taken("find people", "get people")
    found, got = (named(spans, name) for name in ("find people", "get people"))
    assert (
        attributes(found).items()
        >= {
            "db.system.name": "postgresql" if backend.is_postgresql else "sqlite",
            "db.collection.name": "people",
            "db.operation.name": "find",
            "db.query.summary": "find people",
            "db.response.returned_rows": 1,
        }.items()
    )
    text = attributes(found)["db.query.text"]
    assert ("age" in text, "39" in text) == (True, False)
    assert "db.query.text" not in attributes(got)
    for span in (found, got):
        assert (span.kind, span.status.status_code) == (SpanKind.CLIENT, StatusCode.UNSET)
        assert span.start_time is not None
        assert span.end_time is not None
        assert before <= span.start_time <= span.end_time <= time.time_ns()


def test_writes_of_several_have_a_size(open_store: Any, exported: Exported) -> None:
    store = open_store(on_operation=exported.hook())
    store["people"].put_many({str(number): number for number in range(7)})
    store["people"].put("x", 1)
    spans = exported.taken("put_many people", "put people")
    sizes = [attributes(each).get("db.operation.batch.size") for each in spans]
    assert sorted(filter(None, sizes)) == [7]
    assert not any("db.response.returned_rows" in attributes(each) for each in spans)


def test_a_span_of_a_failure(open_store: Any, exported: Exported) -> None:
    store = open_store(on_operation=exported.hook())
    people = store["people"]
    people.create_index("login", unique=True)
    people.put("ada", {"login": "secret"})
    exported.taken("put people")
    with pytest.raises(DuplicateKey, match="secret"):
        people.insert_one({"login": "secret"}, id="bob")
    span = named(exported.taken("insert_one people"), "insert_one people")
    assert attributes(span)["error.type"] == "DuplicateKey"
    assert span.status.status_code is StatusCode.ERROR
    assert "secret" not in span.to_json()
    failed = [each for each in exported.points() if "error.type" in each.attributes]
    assert [(each.attributes["error.type"], each.count) for each in failed] == [("DuplicateKey", 1)]


def test_operations_of_a_transaction(open_store: Any, exported: Exported) -> None:
    store = open_store(on_operation=exported.hook())
    store["people"].put("ada", 1)
    exported.taken("put people")
    with store.transaction() as tx:
        tx["people"].put("ada", tx["people"].get("ada") + 1)
    spans = exported.taken("get people", "put people")
    for name in ("get people", "put people"):
        assert attributes(named(spans, name))["collections_store.in_transaction"] is True


def test_the_parent_is_the_span_of_the_caller(backend: Backend, exported: Exported) -> None:
    with Store(backend.url, on_operation=exported.hook(), **backend.options) as store:
        with exported.tracer.start_as_current_span("request") as parent:
            store["people"].put("ada", 1)
            with store.transaction() as tx:
                assert tx["people"].get("ada") == 1
        store["people"].find({})
    spans = exported.taken()
    for name in ("put people", "get people"):
        child = named(spans, name).parent
        assert child is not None
        assert child.span_id == parent.get_span_context().span_id
    assert named(spans, "find people").parent is None


def test_each_task_has_its_own_parent(backend: Backend, exported: Exported) -> None:
    async def request(store: AsyncStore, number: int) -> None:
        with exported.tracer.start_as_current_span(f"request {number}"):
            await store[f"c{number}"].put("a", number)
            await asyncio.sleep(0)
            assert await store[f"c{number}"].get("a") == number
            async with store.transaction() as tx:
                await tx[f"c{number}"].put("b", number)

    async def main() -> None:
        hook = exported.hook()
        async with AsyncStore(backend.url, on_operation=hook, **backend.options) as store:
            await asyncio.gather(*(request(store, number) for number in range(5)))

    asyncio.run(main())
    spans = exported.taken(*(f"{name} c{n}" for name in ("put", "put", "get") for n in range(5)))
    for number in range(5):
        context = named(spans, f"request {number}").get_span_context()
        assert context is not None
        own = [each for each in spans if each.name.endswith(f" c{number}")]
        assert {each.name for each in own} >= {f"put c{number}", f"get c{number}"}
        assert sum(each.name == f"put c{number}" for each in own) == 2
        for each in own:
            assert each.parent is not None
            assert (each.parent.span_id, each.get_span_context().trace_id) == (  # type: ignore[union-attr]
                context.span_id,
                context.trace_id,
            )


def test_measurements(open_store: Any, backend: Backend, exported: Exported) -> None:
    store = open_store(on_operation=exported.hook())
    for number in range(3):
        store["people"].put("ada", number)
    exported.taken(*3 * ["put people"])
    [point] = [each for each in exported.points() if each.attributes["db.operation.name"] == "put"]
    assert point.count == 3
    assert tuple(point.explicit_bounds) == BUCKETS
    assert 0 < point.min <= point.max <= point.sum
    assert dict(point.attributes) == {
        "db.system.name": "postgresql" if backend.is_postgresql else "sqlite",
        "db.collection.name": "people",
        "db.operation.name": "put",
        "db.query.summary": "put people",
    }


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("sqlite:///shop.db", {"db.namespace": "shop.db"}),
        ("sqlite://", {"db.namespace": ":memory:"}),
        (
            "postgresql://me:secret@db.example:6432/shop",
            {"db.namespace": "shop", "server.address": "db.example", "server.port": 6432},
        ),
        (
            "postgresql://me@db.example/shop",
            {"db.namespace": "shop", "server.address": "db.example", "server.port": 5432},
        ),
        ("postgresql://me@a:1,b:2/shop", {"db.namespace": "shop"}),
    ],
)
def test_the_url_names_database_and_server(
    url: str, expected: dict[str, Any], exported: Exported
) -> None:
    with Store("sqlite://", on_operation=exported.hook(url)) as store:
        store["people"].put("ada", 1)
    span = named(exported.taken("put people"), "put people")
    where = {
        name: value
        for name, value in attributes(span).items()
        if name.startswith(("server.", "db.namespace"))
    }
    assert where == expected
    assert not any("secret" in str(value) for value in attributes(span).values())


def test_a_wrong_url_is_refused() -> None:
    with pytest.raises(InvalidUrl):
        instrument("shop.db")


def test_without_a_provider_nothing_happens(store: Any) -> None:
    with Store("sqlite://", on_operation=instrument()) as other:
        other["people"].put("ada", 1)
        assert other["people"].get("ada") == 1
    assert not trace.get_current_span().is_recording()
    assert unwrap(store) is not None


def test_without_the_package_the_error_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    name = "collections_store.integrations.opentelemetry"
    monkeypatch.delitem(sys.modules, name)
    for module in [each for each in sys.modules if each.split(".")[0] == "opentelemetry"]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setitem(sys.modules, "opentelemetry", None)
    with pytest.raises(MissingExtra, match=r"collections-store\[opentelemetry\]"):
        __import__(name)
