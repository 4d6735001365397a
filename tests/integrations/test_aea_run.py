"""A process of `aea run` that is ended by each signal: no dialogue is lost."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from base64 import b64decode
from collections import Counter
from importlib.metadata import entry_points
from pathlib import Path
from random import Random
from typing import Any

import pytest
from pages import DOCS, blocks

from collections_store import Store

pytest.importorskip("aea", reason="the extra `aea` is not installed")

from aea.__version__ import __version__ as aea_version
from integrations.aea_agents import url

__all__ = ["url"]

ROOT = Path(__file__).parents[2]
PAGE = DOCS / "how-to" / "aea.md"
MAJOR = int(aea_version.partition(".")[0])
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
  dotted_path: integrations.aea_agents:NoDecisions
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
import os

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
    line = f"said {message.dialogue_reference[0]} {message.message_id}\\n"
    os.write(1, line.encode())  # one call: a signal does not divide the line
"""
LEDGER = """
from aea.crypto.registries import crypto_registry

crypto_registry.register("fake", entry_point="integrations.aea_agents:FakeCrypto")
"""
RUN = """
import sys

from aea.cli import cli

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
    (tmp_path / "run.py").write_text(LEDGER + RUN)
    return tmp_path


def started(project: Path, uri: str, more: str = "") -> Any:
    text = AGENT.format(versions=VERSIONS, uri=json.dumps(uri)) + more
    (project / "aea-config.yaml").write_text(text)
    home = {"HOME": str(project), "USERPROFILE": str(project)}  # AEA writes its settings there
    path = os.pathsep.join([str(ROOT / "tests"), str(ROOT)])
    return subprocess.Popen(
        [sys.executable, "-X", "faulthandler", "run.py"],
        cwd=project,
        env=os.environ | {"PYTHONPATH": path, "LC_ALL": "C.UTF-8"} | home,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        bufsize=0,  # unbuffered: communicate() does not return buffered data
    )


def write_program(project: Path, program: str) -> None:
    """Let `started` run a program instead of AEA's command line. The project has no fingerprints."""
    loose = program.replace('from_aea_project(".")', 'from_aea_project(".", True)')
    assert loose != program
    (project / "run.py").write_text(LEDGER + loose)


def lines_until(process: Any, count: int) -> tuple[list[str], list[str]]:
    """Return what an agent restored, and at least a number of messages that it sent."""
    restored: list[str] = []
    said: list[str] = []
    output = []
    for each in process.stdout:
        line = each.decode()
        output.append(line)
        word, *rest = line.split() or [""]
        restored += rest if word == "restored" else []
        said += [" ".join(rest)] if word == "said" else []
        if len(said) >= count:
            return restored, said
    process.wait()
    raise AssertionError("".join(output))


def _rest(process: Any) -> str:
    """Return the remaining output of a process that was signalled; kill it if it does not exit."""
    try:
        return str(process.communicate(timeout=60)[0].decode())
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGABRT)  # prints the stacks of its threads
        raise AssertionError(process.communicate()[0].decode()) from None


def on_disk(url: str) -> list[str]:
    """Return the stored messages."""
    with Store(url) as store:
        (name,) = [each.name for each in store.collections() if each.name.endswith("__messages")]
        bodies = [json.loads(b64decode(each.body["body"])) for each in store[name].list()]
    return [f"{each['dialogue_reference'][0]} {each['message_id']}" for each in bodies]


class Witness:
    """Ends an agent repeatedly during dialogues, and checks that nothing was lost."""

    def __init__(self, project: Path, uri: str, url: str) -> None:
        self.project, self.uri, self.url = project, uri, url
        self.said: list[str] = []
        self.before = self.runs = 0

    def end_after(self, count: int, seconds: float, end: str) -> None:
        process = started(self.project, self.uri)
        try:
            restored, said = lines_until(process, count)
            time.sleep(seconds)
        finally:
            process.send_signal(getattr(signal, end))
            rest = _rest(process)
        self.said += said + [line[5:] for line in rest.splitlines() if line.startswith("said ")]
        self.runs += 1
        assert sum(map(int, restored)) == self.before
        found = on_disk(self.url)
        assert set(self.said) <= set(found)
        assert max(Counter(found).values()) == 1
        assert len(found) <= len(self.said) + self.runs  # one may be stored and not yet printed
        self.before = len({each.split()[0] for each in found})


def attached(url: str) -> str:
    """Return the URI of a storage that saves dialogues message by message."""
    return f"collections+{url}{'&' if '?' in url else '?'}attach=dialogues"


@pytest.mark.skipif(sys.platform == "win32", reason="there are no such signals")
def test_a_real_agent_loses_no_dialogue(project: Path, url: str) -> None:
    """Each run except the first restores the dialogues of the previous one."""
    witness = Witness(project, attached(url), url)
    chance = Random(1)
    for end in ("SIGINT", "SIGTERM", "SIGKILL", "SIGKILL"):
        witness.end_after(chance.randint(1, 30), chance.random() / 50, end)


@pytest.mark.skipif(sys.platform == "win32", reason="there are no such signals")
@pytest.mark.parametrize("is_ours", [True, False])
def test_the_program_of_the_page_loses_no_dialogue(
    project: Path, url: str, *, is_ours: bool
) -> None:
    """The `storage_uri` of the project is ours, of the same database, or AEA's, which `attach` replaces."""
    page = (ROOT / "docs" / "how-to" / "aea.md").read_text(encoding="utf-8")
    (program,) = re.findall(r'```python title="run_agent.py"\n(.*?)```', page, re.DOTALL)
    shown = "postgresql://localhost/agents"
    assert shown in program
    program = program.replace(shown, url)
    program = program.replace('project(".")', 'project(".", skip_consistency_check=True)')
    (project / "run.py").write_text(LEDGER + program)  # no package has fingerprints
    uri = f"collections+{url}" if is_ours else f"sqlite://{project / 'unused.db'}"
    witness = Witness(project, uri, url)
    for end, count in ("SIGKILL", 1), ("SIGINT", 25):
        witness.end_after(count, 0, end)
    assert not (project / "unused.db").exists()


def test_the_error_handler_of_the_page_suffices(project: Path) -> None:
    """A program that loads a project from its configuration, without registration and AEA's command line."""
    pages = [block.text for block in blocks(PAGE) if block.language == "yaml"]
    [uri] = [text for text in pages if text.startswith("storage_uri") and "attach" not in text]
    [handler] = [text for text in pages if text.startswith("error_handler")]
    loading = "from aea.aea_builder import AEABuilder\n"
    write_program(project, loading + 'AEABuilder.from_aea_project(".").build().start()\n')
    process = started(project, uri.partition(" ")[2].strip(), handler)
    try:
        lines_until(process, 20)  # an act of a few lines ends at the checked state
    finally:
        process.kill()
        process.communicate(timeout=60)
    with Store(f"sqlite:///{project / 'agent.db'}") as store:
        assert store["ticks"].get("number") >= 1


def test_the_package_registers_a_command_of_aea() -> None:
    (found,) = {each.value for each in entry_points(group="aea.cli")}
    assert found == "collections_store.cli.aea:command"


def test_the_error_handler_registers_the_storage(tmp_path: Path) -> None:
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
