"""Memories of mem0 with deterministic models; the program of `test_mem0.py`, which uses one in a process of its own."""

import json
import re
import sys
from typing import Any

from mem0 import Memory
from mem0.embeddings.base import EmbeddingBase
from mem0.llms.base import LLMBase

from collections_store import Store
from collections_store.integrations.mem0 import memory_config

SUBJECTS = (("tea", "coffee", "drink"), ("rain", "sun", "umbrella"), ("train", "station", "ticket"))


class Embedder(EmbeddingBase):
    """Counts the words of three subjects."""

    def embed(self, text: str, memory_action: Any = None) -> list[float]:
        return [float(sum(map(text.lower().count, words))) for words in SUBJECTS]


class Llm(LLMBase):
    """Finds a fact in each new message of a user."""

    def generate_response(self, messages: Any, **options: Any) -> str:
        said = messages[-1]["content"].split("## New Messages")[-1].replace("\\n", "\n")
        facts = re.findall(r"\buser: (.+)$", said, re.MULTILINE)
        return json.dumps({"memory": [{"text": fact} for fact in facts]})


def memory_of(store: Store, kind: Any = Memory, **options: Any) -> Any:
    """Return a memory in a store, without a network: mem0 knows no models outside of its lists."""
    key = {"provider": "openai", "config": {"api_key": "unused"}}
    options |= {"embedder": key, "llm": key, "history_db_path": ":memory:"}
    memory = kind(memory_config(store, dimensions=len(SUBJECTS), **options))
    memory.embedding_model, memory.llm = Embedder(), Llm()
    return memory


def main(url: str, options: str, method: str, arguments: str) -> None:
    with Store(url, **json.loads(options)) as store:
        print(json.dumps(getattr(memory_of(store), method)(**json.loads(arguments))))


if __name__ == "__main__":
    main(*sys.argv[1:])
