"""An AEA agent with one skill, built without packages and without a network."""

import asyncio
import gc
import json
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

pytest.importorskip("aea", reason="the extra `aea` is not installed")

from aea.aea import AEA
from aea.common import Address
from aea.configurations.base import SkillConfig
from aea.configurations.data_types import PublicId
from aea.crypto.base import Crypto
from aea.crypto.wallet import Wallet
from aea.decision_maker.base import DecisionMakerHandler
from aea.identity.base import Identity
from aea.protocols.base import Message, Serializer
from aea.protocols.dialogue.base import Dialogue, DialogueLabel, Dialogues
from aea.registries.resources import Resources
from aea.skills.base import Behaviour, Model, Skill, SkillContext

ADDRESS = "ada_address"
PEER = "bob_address"


class ShopSerializer(Serializer):
    """A message as JSON instead of AEA's protobuf."""

    @staticmethod
    def encode(msg: Message) -> bytes:
        body = dict(msg._body)
        body["performative"] = str(body["performative"])
        return json.dumps(body).encode()

    @staticmethod
    def decode(obj: bytes) -> Message:
        body = json.loads(obj)
        body["performative"] = ShopMessage.Performative(body["performative"])
        body["dialogue_reference"] = tuple(body["dialogue_reference"])
        return ShopMessage(_body=body)


class ShopMessage(Message):
    protocol_id = PublicId.from_str("tests/shop:0.1.0")
    serializer = ShopSerializer

    class Performative(Message.Performative):
        ASK = "ask"
        TELL = "tell"
        BYE = "bye"

        def __str__(self) -> str:
            return str(self.value)

    _performatives = {"ask", "tell", "bye"}

    class _SlotsCls:
        __slots__ = ("dialogue_reference", "message_id", "performative", "target", "text", "wei")


ASK, TELL, BYE = ShopMessage.Performative


class ShopDialogue(Dialogue):
    INITIAL_PERFORMATIVES: Any = frozenset({ASK})
    TERMINAL_PERFORMATIVES: Any = frozenset({BYE})
    VALID_REPLIES: Any = {
        ASK: frozenset({TELL, BYE}),
        TELL: frozenset({ASK, TELL, BYE}),
        BYE: frozenset({TELL}),  # a protocol may allow another message after the end
    }

    class Role(Dialogue.Role):
        BUYER = "buyer"
        SELLER = "seller"

    class EndState(Dialogue.EndState):
        SUCCESSFUL = 0

    def __init__(
        self,
        dialogue_label: DialogueLabel,
        self_address: Address,
        role: Dialogue.Role,
        message_class: Any = ShopMessage,
    ) -> None:
        Dialogue.__init__(
            self,
            dialogue_label=dialogue_label,
            message_class=message_class,
            self_address=self_address,
            role=role,
        )


class BaseShopDialogues(Dialogues):
    _keep_terminal_state_dialogues = True

    def __init__(self, self_address: Address) -> None:
        def role(message: Message, receiver_address: Address) -> Dialogue.Role:
            is_own = message.sender == receiver_address
            return ShopDialogue.Role.BUYER if is_own else ShopDialogue.Role.SELLER

        Dialogues.__init__(
            self,
            self_address=self_address,
            end_states=frozenset({ShopDialogue.EndState.SUCCESSFUL}),
            message_class=ShopMessage,
            dialogue_class=ShopDialogue,
            role_from_first_message=role,
        )


class ShopDialogues(Model, BaseShopDialogues):
    def __init__(self, **kwargs: Any) -> None:
        Model.__init__(self, **kwargs)
        BaseShopDialogues.__init__(self, self.context.agent_address)


class NoDecisions(DecisionMakerHandler):
    """Does nothing: AEA's own decision maker needs a package of protocols."""

    self_address = ADDRESS

    def __init__(self, identity: Identity, wallet: Wallet, config: Any) -> None:
        super().__init__(identity=identity, wallet=wallet, config=config)

    def handle(self, message: Message) -> None:
        pass


class FakeCrypto(Crypto[str]):
    """A key for no ledger."""

    identifier = "fake"
    private_key = public_key = "key"
    address = ADDRESS

    @classmethod
    def generate_private_key(cls, extra_entropy: Any = "") -> str:  # noqa: ARG003
        return "key"

    @classmethod
    def load_private_key_from_path(cls, file_name: str, password: Any = None) -> str:  # noqa: ARG003
        return "key"

    def sign_message(self, message: bytes, is_deprecated_mode: bool = False) -> str:
        raise NotImplementedError

    def sign_transaction(self, transaction: Any) -> Any:
        raise NotImplementedError

    def encrypt(self, password: str) -> str:
        raise NotImplementedError

    @classmethod
    def decrypt(cls, keyfile_json: str, password: str) -> str:
        raise NotImplementedError


class Greeter(Behaviour):
    """Creates a dialogue in its setup, which runs before that of the dialogues."""

    greets = False

    def setup(self) -> None:
        if self.greets:
            self.context.shop_dialogues.create(PEER, ASK, text="hello")

    def act(self) -> None:
        pass

    def teardown(self) -> None:
        pass


def agent(
    folder: Path,
    *,
    storage_uri: str | None = None,
    address: str = ADDRESS,
    keep: bool | None = None,
    name: str = "shop_dialogues",
) -> Any:
    """Build an agent whose skill has dialogues."""
    identity = Identity("agent", address=address, public_key="key")
    resources = Resources()
    options: dict[str, Any] = {
        "storage_uri": storage_uri,
        "decision_maker_handler_class": NoDecisions,
    }
    aea = AEA(identity, Wallet({}), resources, str(folder), **options)
    add_skill(aea, "shop", name, keep_terminal_state_dialogues=keep)
    return aea


def add_skill(
    aea: AEA, name: str, model: str = "shop_dialogues", made: Any = ShopDialogues, **options: Any
) -> None:
    """Add a skill with dialogues to an agent."""
    context = SkillContext(aea.context)
    parts: dict[str, Any] = {"name": model, "skill_context": context}
    skill = Skill(SkillConfig(name, "tests", "0.1.0"), context, {}, {}, {})
    skill.behaviours["greeter"] = Greeter(name="greeter", skill_context=context)
    skill.models[model] = made(**options, **parts)
    skill._set_models_on_context()
    setattr(context, "shop_dialogues", skill.models[model])  # noqa: B010
    aea.resources.add_skill(skill)


@pytest.fixture
def url(shared_backend: Any) -> str:
    """The URL of an empty database."""
    if not shared_backend.is_postgresql:
        return str(shared_backend.url)
    schema = shared_backend.options["schema"]
    engine = sa.create_engine(shared_backend.url.replace("postgresql:", "postgresql+psycopg:"))
    with engine.begin() as connection:
        connection.execute(sa.schema.CreateSchema(schema))
    engine.dispose()
    made = sa.make_url(shared_backend.url).update_query_dict({"options": f"-csearch_path={schema}"})
    return made.render_as_string(hide_password=False)


@pytest.fixture(autouse=True)
def closed_loops(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Close the event loops that AEA leaves open."""
    loops: list[asyncio.AbstractEventLoop] = []
    policy = asyncio.get_event_loop_policy()
    original = policy.new_event_loop

    def noted() -> asyncio.AbstractEventLoop:
        loops.append(original())
        return loops[-1]

    monkeypatch.setattr(policy, "new_event_loop", noted)
    yield
    asyncio.set_event_loop(None)
    for each in loops:
        _close(each)


def _close(loop: asyncio.AbstractEventLoop) -> None:
    """Close a loop, unless its thread does: AEA does not always wait for it."""
    until = time.monotonic() + 30
    while loop.is_running() and time.monotonic() < until:
        time.sleep(0.001)
    with suppress(AttributeError):
        loop.close()


@contextmanager
def running(aea: AEA, dialogues: Any = None) -> Iterator[Any]:
    """Run an agent in a thread; yield its dialogues."""
    aea.runtime._threaded = True
    aea.runtime.start()
    dialogues = dialogues or dialogues_of(aea)
    try:
        _wait_for(aea, "running")
        yield dialogues
    finally:
        aea.runtime.stop()
        aea.runtime.wait_completed(sync=True, timeout=30)


@contextmanager
def of_sqlalchemy_here() -> Iterator[set[str]]:
    """Record which functions of SQLAlchemy run in this thread."""
    seen: set[str] = set()

    def profile(frame: Any, event: str, _: Any) -> None:
        name = frame.f_globals.get("__name__", "")
        if name.partition(".")[0] == "sqlalchemy":
            seen.add(f"{name}.{frame.f_code.co_name}")

    gc.collect()
    gc.disable()  # it collects garbage of other tests in any thread
    sys.setprofile(profile)
    try:
        yield seen
    finally:
        sys.setprofile(None)
        gc.enable()


def _wait_for(aea: AEA, state: str) -> None:
    until = time.monotonic() + 30
    while aea.runtime.state.value != state:
        if aea.runtime.state.value == "error" or time.monotonic() > until:
            aea.runtime.wait_completed(sync=True, timeout=30)
            raise AssertionError(f"the agent is {aea.runtime.state}")
        time.sleep(0.005)


def dialogues_of(aea: AEA) -> Any:
    """Return the dialogues of an agent's skill."""
    (skill,) = aea.resources.get_all_skills()
    (model,) = skill.models.values()
    return model


def peer(address: str = PEER) -> Any:
    """Return the dialogues of another agent, in memory."""
    return BaseShopDialogues(address)


def sent(message: Message) -> ShopMessage:
    """Return a message as the counterparty receives it: decoded from the same bytes."""
    arrived = ShopMessage.decode(message.encode())
    arrived.sender, arrived.to = (
        "".join(list(message.sender)),
        "".join(list(message.to)),
    )
    assert isinstance(arrived, ShopMessage)
    return arrived
