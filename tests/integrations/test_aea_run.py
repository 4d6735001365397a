"""A process of AEA's command line, `aea run`, that is ended in each way: no dialogue is lost."""

import json
import os
import signal
import subprocess
import sys
from base64 import b64decode
from collections import Counter
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import pytest
from test_docs import DOCS, blocks

from collections_store import Store

aea = pytest.importorskip("aea", reason="the extra `aea` is not installed")

ROOT = Path(__file__).parents[2]
PAGE = DOCS / "how-to" / "use-with-aea.md"
MAJOR = int(aea.__version__.partition(".")[0])
VERSIONS = f"'>={MAJOR}.0.0, <{MAJOR + 1}.0.0'"

AGENT = """
agent_name: ada
author: tests
version: 0.1.0
license: Apache-2.0
description: It talks to itself.
aea_version: {versions}
fingerprint: {{}}
fingerprint_ignore_patterns: []
connections: []
contracts: []
protocols: []
skills: [tests/shop:0.1.0]
default_connection: null
default_ledger: fake
required_ledgers: [fake]
private_key_paths: {{fake: key.txt}}
dependencies: {{}}
storage_uri: {uri}
decision_maker_handler:
  dotted_path: integrations.aea_agents:Undecided
  file_path: null
  config: {{}}
"""
SKILL = """
name: shop
author: tests
version: 0.1.0
type: skill
license: Apache-2.0
description: It talks.
aea_version: {versions}
fingerprint: {{}}
fingerprint_ignore_patterns: []
connections: []
contracts: []
protocols: []
skills: []
handlers: {{}}
behaviours: {{speaker: {{class_name: Speaker, args: {{}}}}}}
models: {{shop_dialogues: {{class_name: OwnDialogues, args: {{}}}}}}
dependencies: {{}}
is_abstract: false
"""
MODELS = """
from integrations.aea_agents import ShopDialogues


class OwnDialogues(ShopDialogues):
    pass
"""
BEHAVIOURS = """
from integrations.aea_agents import ASK, BYE, TELL, peer, sent

from aea.skills.base import Behaviour


class Speaker(Behaviour):
    number = 0

    def setup(self):
        self.bob = peer()

    def teardown(self):
        pass

    def act(self):
        ours = self.context.shop_dialogues
        if not self.number:
            storage = ours._dialogues_storage
            ended = len(storage.dialogues_in_terminal_state)
            print("restored", len(storage.dialogues_in_active_state), ended, flush=True)
        self.number += 1
        message, own = ours.create(self.bob.self_address, ASK, text="hi")
        said(message)
        other = self.bob.update(sent(message))
        answer = other.reply(TELL, text="ho")
        assert ours.update(sent(answer)) is own
        said(answer)
        if self.number % 3 == 0:
            said(own.reply(BYE))
        question, _ = self.bob.create(ours.self_address, ASK, text="what?")
        theirs = ours.update(sent(question))
        said(question)
        said(theirs.reply(TELL, text="this"))
        self.context.storage.get_sync_collection("ticks").put("number", self.number)


def said(message):
    print("said", message.dialogue_reference[0], message.message_id, flush=True)
"""
RUN = """
import sys

from aea.cli import cli
from aea.crypto.registries import crypto_registry

crypto_registry.register("fake", entry_point="integrations.aea_agents:FakeCrypto")
cli(["-s", "run", *sys.argv[1:]], prog_name="aea")
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """An agent's folder."""
    skill = tmp_path / "skills" / "shop"
    skill.mkdir(parents=True)
    (skill / "__init__.py").write_text('"""A skill."""\n')
    (skill / "skill.yaml").write_text(SKILL.format(versions=VERSIONS))
    (skill / "models.py").write_text(MODELS)
    (skill / "behaviours.py").write_text(BEHAVIOURS)
    (tmp_path / "key.txt").write_text("key")
    (tmp_path / "run.py").write_text(RUN)
    return tmp_path


def started(project: Path, uri: str, more: str = "") -> Any:
    (project / "aea-config.yaml").write_text(AGENT.format(versions=VERSIONS, uri=uri) + more)
    home = {"HOME": str(project), "USERPROFILE": str(project)}  # AEA writes its settings there
    path = os.pathsep.join([str(ROOT / "tests"), str(ROOT)])
    return subprocess.Popen(
        [sys.executable, "run.py"],
        cwd=project,
        env=os.environ | {"PYTHONPATH": path, "LC_ALL": "C.UTF-8"} | home,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        encoding="utf-8",
    )


def write_program(project: Path, program: str) -> None:
    """Have `started` run a program in the place of AEA's command line. The project has no fingerprints."""
    begin = RUN.replace("from aea.cli import cli\n", "").partition("cli([")[0]
    loose = program.replace('from_aea_project(".")', 'from_aea_project(".", True)')
    assert loose != program
    (project / "run.py").write_text(begin + loose)


def lines_until(process: Any, count: int) -> tuple[list[str], list[str]]:
    """Return what an agent restored, and at least so many messages that it said."""
    restored: list[str] = []
    said: list[str] = []
    output = []
    for line in process.stdout:
        output.append(line)
        word, *rest = line.split() or [""]
        restored += rest if word == "restored" else []
        said += [" ".join(rest)] if word == "said" else []
        if len(said) >= count:
            return restored, said
    process.wait()
    raise AssertionError("".join(output))


def on_disk(file: Path) -> list[str]:
    """Return the messages that are on the disk."""
    with Store(f"sqlite:///{file}") as store:
        (name,) = [each.name for each in store.collections() if each.name.endswith("__messages")]
        bodies = [json.loads(b64decode(each.body["body"])) for each in store[name].list()]
    return [f"{each['dialogue_reference'][0]} {each['message_id']}" for each in bodies]


@pytest.mark.skipif(sys.platform == "win32", reason="there are no such signals")
@pytest.mark.parametrize("end", ["SIGKILL", "SIGTERM", "SIGINT"])
def test_a_real_agent_loses_no_dialogue(project: Path, end: str) -> None:
    all_said: list[str] = []
    before = 0
    for _ in range(3):
        process = started(project, "collections+sqlite:///agent.db?attach=dialogues")
        try:
            restored, said = lines_until(process, 30)
        finally:
            process.send_signal(getattr(signal, end))
            rest = process.communicate(timeout=60)[0]
        all_said += said + [line[5:] for line in rest.splitlines() if line.startswith("said ")]
        assert sum(map(int, restored)) == before
        found = on_disk(project / "agent.db")
        assert set(all_said) <= set(found)
        assert max(Counter(found).values()) == 1
        assert len(found) <= len(all_said) + 3  # one may be said, and not yet told
        before = len({each.split()[0] for each in found})


def test_the_program_of_the_page_loses_no_dialogue(project: Path) -> None:
    [program] = [block.text for block in blocks(PAGE) if block.title == "run_agent.py"]
    url = "postgresql://localhost/agents"
    assert program.count(url) == 1
    write_program(project, program.replace(url, "sqlite:///agent.db"))
    for _ in range(2):
        process = started(project, "sqlite://unused.db")
        try:
            _, said = lines_until(process, 12)
        finally:
            process.kill()
            process.communicate(timeout=60)
        assert set(said) <= set(on_disk(project / "agent.db"))


def test_the_error_handler_of_the_page_is_all_that_a_configuration_needs(project: Path) -> None:
    """A program that loads a project from its configuration, and neither registers nor is AEA's command line."""
    pages = [block.text for block in blocks(PAGE) if block.language == "yaml"]
    [uri] = [text for text in pages if text.startswith("storage_uri") and "attach" not in text]
    [handler] = [text for text in pages if text.startswith("error_handler")]
    loading = "from aea.aea_builder import AEABuilder\n"
    write_program(project, loading + 'AEABuilder.from_aea_project(".").build().start()\n')
    process = started(project, uri.partition(" ")[2].strip(), handler)
    try:
        lines_until(process, 20)  # an act of a few lines ends with what is looked at
    finally:
        process.kill()
        process.communicate(timeout=60)
    with Store(f"sqlite:///{project / 'agent.db'}") as store:
        assert store["ticks"].get("number") >= 1


def test_installing_the_package_is_enough() -> None:
    (found,) = {each.value for each in entry_points(group="aea.cli")}
    assert found == "collections_store.cli.aea:command"


def test_the_error_handler_registers_too(tmp_path: Path) -> None:
    script = (
        "from collections_store.integrations.aea.error_handler import ErrorHandler\n"
        "from aea.helpers.storage.generic_storage import BACKENDS\n"
        "print('collections+sqlite' in BACKENDS)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script],
        check=True,
        stdout=subprocess.PIPE,
        encoding="utf-8",
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
    )
    assert done.stdout == "True\n"
