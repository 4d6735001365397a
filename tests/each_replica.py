"""The contract tests, or those that the arguments name, with stores that read from a replica: `python tests/each_replica.py …`."""

import os
import subprocess
import sys

from postgres_cluster import cluster, template
from postgres_server import URL_VARIABLE

REPLICAS_VARIABLE = "COLLECTIONS_STORE_TEST_REPLICAS_URL"
"""The URL of replicas from which the stores of the tests on PostgreSQL read."""
LEFT_OUT = (
    *("engine", "caller", "borrowed", "bind_takes", "mapped_class", "exhausted_pool", "changes_nothing"),
    *("counted", "many_rows", "more_rows"),
    *("earlier_versions", "read_only_store", "only_reads_searches"),
    *("the_consistency_of_reads", "recreated_meanwhile", "follows_a_rename", "others_go_on_while"),
    *("figures_of_a_store", "has_one_record", "of_a_call_has_the_comment"),
)  # fmt: skip
"""Parts of the names of tests that are left out: engines, migrations and read-only stores have no replicas, statements
are counted on the primary, a read may be behind the writes of another store, and replicas change figures, records and statements.
"""
CHOSEN = " and ".join(["postgresql", *(f"not {each}" for each in LEFT_OUT)])


def main() -> int:
    """Run the tests; return pytest's exit code."""
    with template() as data, cluster(data) as nodes:
        primary = nodes.add()
        replica = nodes.add(primary)
        urls = {URL_VARIABLE: primary.url, REPLICAS_VARIABLE: replica.url}
        tests = sys.argv[1:] or ["tests/contract"]
        command = (sys.executable, "-m", "pytest", "-k", CHOSEN, *tests)
        code = subprocess.run(command, env=os.environ | urls, check=False).returncode
        for node in (primary, replica):
            [(count,)] = node.query("SELECT sum(xact_commit) FROM pg_stat_database")
            print(f"{node.name}: {count} transactions")
        return code


if __name__ == "__main__":
    raise SystemExit(main())
