"""A user's own alembic, with the plugin or with `include_name` in its `env.py`, beside a store in the same database."""

import json
import os
import re
import subprocess
import sys
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from alembic import command
from alembic.config import Config
from backends import Backend
from selection import sampled

from collections_store import Store
from collections_store.migrate import include_name

# SQLAlchemy warns of indexes over expressions; alembic may read all tables before it filters them
pytestmark = pytest.mark.filterwarnings("ignore:Skipped unsupported reflection")

METADATA = sa.MetaData()
INVOICES = sa.Table("invoices", METADATA, sa.Column("id", sa.Integer, primary_key=True))

ENV = """
from alembic import context

connection = context.config.attributes["connection"]
context.configure(connection=connection, **context.config.attributes["options"])
with context.begin_transaction():
    context.run_migrations()
"""


@pytest.fixture
def engine(shared_backend: Backend) -> Any:
    if shared_backend.is_postgresql:  # as users have it: in the default schema
        path = f"-csearch_path={shared_backend.options['schema']}"
        engine = sa.create_engine(shared_backend.url, connect_args={"options": path})
    else:
        engine = sa.create_engine(shared_backend.url)
    yield engine
    engine.dispose()


def fill(backend: Backend, **options: Any) -> None:
    """Create every kind of table of a store."""
    with Store(backend.url, **{**backend.options, **options}) as store:
        things = store.get_sync_collection("Things", changes="both")
        things.create_index("tags", arrays=True)
        things.create_index(["tags", "name"], unique=True, arrays=True)
        things.create_index("name", unique=True)
        things.put("a", {"tags": ["x"], "name": "n"}, ttl=60)
        store["with_many_characters_in_its_name"].put("a", 1)


def proposed(engine: sa.Engine, folder: Path, **options: Any) -> str:
    """Return the operations of a migration that `alembic revision --autogenerate` creates."""
    config = Config()
    config.set_main_option("script_location", str(folder))
    if not folder.exists():
        (folder / "versions").mkdir(parents=True)
        (folder / "env.py").write_text(ENV)
        template = Path(command.__file__).parent / "templates" / "generic" / "script.py.mako"
        (folder / "script.py.mako").write_text(template.read_text())
    with engine.begin() as connection:
        every = {"target_metadata": METADATA, "include_name": include_name, **options}
        config.attributes.update(connection=connection, options=every)
        made: Any = command.revision(config, autogenerate=True)
        text = Path(made.path).read_text()
        Path(made.path).unlink()
    return str(re.split("def upgrade", text)[1].split("def downgrade")[0])


def calls(text: str) -> list[str]:
    return re.findall(r"op\.(\w+\('\w+')", text)


def test_alembic_sees_the_tables_of_the_user_only(
    shared_backend: Backend, engine: sa.Engine, tmp_path: Path
) -> None:
    folder = tmp_path / "alembic"
    fill(shared_backend)
    assert calls(proposed(engine, folder)) == ["create_table('invoices'"]
    METADATA.create_all(engine)
    with engine.begin() as connection:
        connection.execute(sa.text("CREATE TABLE cs_left_over (id INTEGER)"))
        connection.execute(sa.text("CREATE TABLE left_over (id INTEGER)"))
    found = calls(proposed(engine, folder))
    assert sorted(found) == ["drop_table('cs_left_over'", "drop_table('left_over'"]


WITHOUT_PLUGIN = ["alembic.autogenerate.*", "~alembic.autogenerate.collections_store"]


def test_without_the_filter_and_the_plugin_alembic_would_drop_the_tables(
    shared_backend: Backend, engine: sa.Engine, tmp_path: Path
) -> None:
    fill(shared_backend)
    options = {"include_name": None, "autogenerate_plugins": WITHOUT_PLUGIN}
    text = proposed(engine, tmp_path / "alembic", **options)
    assert len(re.findall(r"op\.drop_table\('cs_", text)) >= 5


def test_the_plugin_keeps_the_tables_of_stores_alone(
    shared_backend: Backend, engine: sa.Engine, tmp_path: Path
) -> None:
    fill(shared_backend)
    fill(shared_backend, prefix="bot")
    with engine.begin() as connection:
        for table in ("cs_left_over", "my_collections", "my_revision", "my_1_things"):
            connection.execute(sa.text(f'CREATE TABLE "{table}" (id INTEGER)'))
    text = proposed(engine, tmp_path / "alembic", include_name=None)
    assert sorted(calls(text)) == [
        "create_table('invoices'",
        "drop_table('cs_left_over'",
        "drop_table('my_1_things'",
        "drop_table('my_collections'",
        "drop_table('my_revision'",
    ]


def test_custom_prefix(shared_backend: Backend, engine: sa.Engine, tmp_path: Path) -> None:
    fill(shared_backend, prefix="bot")
    METADATA.create_all(engine)
    options = {"include_name": partial(include_name, prefix="bot")}
    assert calls(proposed(engine, tmp_path / "alembic", **options)) == []


@pytest.mark.each_backend
@pytest.mark.parametrize("shared_backend", ["postgresql"], indirect=True)
def test_custom_schema(shared_backend: Backend, tmp_path: Path) -> None:
    fill(shared_backend)
    schema = shared_backend.options["schema"]
    engine = sa.create_engine(shared_backend.url)
    with engine.begin() as connection:
        connection.execute(sa.text(f"CREATE TABLE {schema}.left_over (id INTEGER)"))

    def include(name: str | None, type_: str, parent_names: Any) -> bool:
        ours = name == schema if type_ == "schema" else include_name(name, type_, parent_names)
        return bool(ours)

    options = {"include_schemas": True, "include_name": include}
    assert calls(proposed(engine, tmp_path / "alembic", **options)) == [
        "create_table('invoices'",
        "drop_table('left_over'",
    ]
    engine.dispose()


PROJECT = """
import json
import os
from functools import partial

import sqlalchemy as sa
from alembic import context

from collections_store.migrate import include_name

metadata = sa.MetaData()
sa.Table("invoices", metadata, sa.Column("id", sa.Integer, primary_key=True))
engine = sa.create_engine(os.environ["SHOP_URL"])
excluding = partial(include_name, prefix=os.environ["SHOP_PREFIX"])
schema = os.environ.get("SHOP_SCHEMA")


def include(name, type_, parent_names):
    if type_ == "schema":
        return name in {None, schema}
    return name != "reports" and excluding(name, type_, parent_names)


with engine.connect() as connection:
    chosen = {"include_name": include} if os.environ["SHOP_EXCLUDES"] == "yes" else {}
    if schema is not None:
        chosen["include_schemas"] = True
    if os.environ["SHOP_EXCLUDES"] == "neither":
        chosen["autogenerate_plugins"] = json.loads(os.environ["SHOP_PLUGINS"])
    context.configure(connection=connection, target_metadata=metadata, **chosen)
    with context.begin_transaction():
        context.run_migrations()
"""


def alembic(folder: Path, environment: dict[str, str], *arguments: str) -> None:
    """Run alembic's command in a project on disk."""
    command = [sys.executable, "-m", "alembic", *arguments]
    done = subprocess.run(
        command,
        check=False,
        cwd=folder,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.each_backend
@pytest.mark.parametrize(
    ("shared_backend", "in_schema", "prefix"),
    [
        ("sqlite-file", False, "cs_"),
        ("sqlite-file", False, "bot"),
        *product(["postgresql"], [False, True], ["cs_", "bot"]),
    ][:: sampled(5)],
    indirect=["shared_backend"],
)
def test_the_command_of_alembic_in_a_project(
    shared_backend: Backend, tmp_path: Path, prefix: str, in_schema: bool
) -> None:
    """With the filter, combined with one of the project's own, or with the plugin, it drops no table; with neither, all of
    the store.
    """
    fill(shared_backend, prefix=prefix)
    url = sa.make_url(shared_backend.url)
    if shared_backend.is_postgresql:
        url = url.set(drivername="postgresql+psycopg")
        if not in_schema:
            search = f"-csearch_path={shared_backend.options['schema']}"
            url = url.update_query_dict({"options": search})
    environment = {"SHOP_URL": url.render_as_string(hide_password=False), "SHOP_PREFIX": prefix}
    environment["SHOP_PLUGINS"] = json.dumps(WITHOUT_PLUGIN)
    if in_schema:
        environment["SHOP_SCHEMA"] = shared_backend.options["schema"]
    alembic(tmp_path, environment, "init", "migrations")
    (tmp_path / "migrations" / "env.py").write_text(PROJECT)
    for excludes, message in (("yes", "first"), ("no", "second"), ("neither", "third")):
        environment["SHOP_EXCLUDES"] = excludes
        alembic(tmp_path, environment, "revision", "--autogenerate", "-m", message)
        [made] = (tmp_path / "migrations" / "versions").glob(f"*_{message}.py")
        upgrading = made.read_text().split("def upgrade")[1].split("def downgrade")[0]
        dropped = re.findall(r"op\.drop_(?:table|index)\(.*?'(\w\S*?)'", upgrading)
        assert "create_table('invoices'" in upgrading
        if excludes != "neither":
            assert dropped == []
            made.unlink()
        else:
            assert {f"{prefix}collections", f"{prefix}revision"} <= set(dropped)
            assert len(dropped) >= 5
