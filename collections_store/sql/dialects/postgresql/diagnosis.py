"""Probes for problems of a PostgreSQL database, from the server's catalogues and statistics."""

from __future__ import annotations

from ..protocols import Diagnosis, Probe

_TABLES = (
    "pg_class AS t JOIN pg_namespace AS n ON n.oid = t.relnamespace AND t.relkind IN ('r', 'p') "
    "AND starts_with(t.relname, %(prefix)s) AND CASE WHEN CAST(%(schema)s AS text) IS NULL "
    "THEN pg_table_is_visible(t.oid) ELSE n.nspname = %(schema)s END"
)
_INDEXES = (
    f"{_TABLES} JOIN pg_index AS x ON x.indrelid = t.oid JOIN pg_class AS i ON i.oid = x.indexrelid"
)
_CAN_CHECK = (
    "SELECT 1 FROM pg_proc WHERE proname = 'bt_index_check' AND pronargs = 1 "
    "AND pg_function_is_visible(oid) AND has_function_privilege(oid, 'EXECUTE')"
)
_POSITION = (
    "CASE WHEN pg_is_in_recovery() THEN pg_last_wal_replay_lsn() ELSE pg_current_wal_lsn() END"
)


class PostgresDiagnosis(Diagnosis):
    """Integrity, indexes, vacuum, sessions, replication."""

    tables = f"SELECT t.relname, i.relname FROM {_TABLES} LEFT JOIN pg_index AS x ON x.indrelid = t.oid LEFT JOIN pg_class AS i ON i.oid = x.indexrelid"
    index_sizes = (
        "SELECT n.name, sum(CASE c.relkind WHEN 'i' THEN pg_relation_size(c.oid) ELSE pg_table_size(c.oid) END)::BIGINT, "
        "(sum(s.idx_scan) FILTER (WHERE c.relname = n.name OR a.amname <> 'btree'))::BIGINT "
        "FROM unnest(CAST(%(names)s AS TEXT[])) AS n(name) JOIN pg_class AS c ON c.relkind IN ('i', 'r') AND (c.relname = n.name "
        "OR starts_with(c.relname, n.name || '_') OR starts_with(c.relname, n.name || '$')) "
        "JOIN pg_namespace AS o ON o.oid = c.relnamespace AND CASE WHEN CAST(%(schema)s AS TEXT) IS NULL "
        "THEN pg_table_is_visible(c.oid) ELSE o.nspname = %(schema)s END "
        "LEFT JOIN pg_am AS a ON a.oid = c.relam LEFT JOIN pg_stat_user_indexes AS s ON s.indexrelid = c.oid GROUP BY n.name"
    )
    index_sizes_need = (
        "SELECT 1 WHERE NOT EXISTS (SELECT FROM pg_extension WHERE extname = 'citus')"
    )
    probes = (
        Probe(
            "integrity",
            "error",
            "SELECT '', checksum_failures FROM pg_stat_database WHERE datname = current_database() AND checksum_failures > 0",
            "{1} pages of the database had a wrong checksum",
            "look for failing storage, and restore the database from a backup",
        ),
        Probe(
            "integrity",
            "error",
            f"WITH ours AS MATERIALIZED (SELECT t.relname, i.oid FROM {_INDEXES} JOIN pg_am AS a ON a.oid = i.relam "
            "WHERE a.amname = 'btree' AND i.relkind = 'i' AND x.indisvalid) "
            "SELECT relname FROM ours WHERE bt_index_check(oid)::text <> ''",
            "an index is damaged",
            "run REINDEX TABLE CONCURRENTLY on its table; look for failing storage",
            needs=_CAN_CHECK,
        ),
        Probe(
            "integrity",
            "info",
            f"SELECT '' WHERE NOT EXISTS ({_CAN_CHECK})",
            "the pages of indexes were not checked: the extension amcheck is missing, or its use not granted",
            "as a superuser run CREATE EXTENSION amcheck, and grant EXECUTE on bt_index_check(regclass)",
        ),
        Probe(
            "indexes",
            "warning",
            f"SELECT t.relname, i.relname FROM {_INDEXES} WHERE NOT x.indisvalid",
            "the index {1} is invalid, since its creation failed: queries do not use it, and writes maintain it",
            "run REINDEX INDEX CONCURRENTLY {1}, or DROP INDEX {1} if no collection declares it",
        ),
        Probe(
            "scans",
            "warning",
            f"SELECT t.relname, s.seq_scan, s.seq_tup_read / s.seq_scan FROM {_TABLES} "
            "JOIN pg_stat_user_tables AS s ON s.relid = t.oid "
            "WHERE s.seq_scan >= %(scans)s AND s.seq_tup_read / s.seq_scan >= %(rows)s",
            "{1} scans read {2} rows each: filters without an index are frequent",
            "use explain on the filters of your program, and create the index that it advises",
        ),
        Probe(
            "indexes",
            "info",
            f"SELECT t.relname, i.relname, pg_relation_size(i.oid) / 1048576 FROM {_INDEXES} "
            "JOIN pg_stat_user_indexes AS s ON s.indexrelid = i.oid "
            "WHERE s.idx_scan = 0 AND NOT x.indisunique AND pg_relation_size(i.oid) >= %(rows)s * 100",
            "the index {1} ({2} MB) was not used since the server's statistics were reset",
            "if no replica uses it either, drop it by drop_index, or declare body_index=False for the index of bodies",
        ),
        Probe(
            "bloat",
            "warning",
            f"SELECT t.relname, s.n_dead_tup, coalesce(greatest(s.last_vacuum, s.last_autovacuum)::text, 'never') FROM {_TABLES} "
            "JOIN pg_stat_user_tables AS s ON s.relid = t.oid "
            "WHERE s.n_dead_tup >= %(rows)s AND s.n_dead_tup * 4 >= s.n_live_tup",
            "{1} dead rows wait for a vacuum; the last one was: {2}",
            "end long transactions, run VACUUM, and let autovacuum run more often",
        ),
        Probe(
            "transactions",
            "warning",
            "SELECT '', pid, coalesce(application_name, ''), state, extract(epoch FROM now() - xact_start)::bigint FROM pg_stat_activity "
            "WHERE datname = current_database() AND backend_type = 'client backend' AND pid <> pg_backend_pid() "
            "AND xact_start < now() - make_interval(secs => %(seconds)s)",
            "process {1} {2!r} ({3}) has a transaction open for {4} seconds: no vacuum removes what it may see",
            "end it, if necessary by SELECT pg_terminate_backend({1}); set idle_in_transaction_session_timeout",
        ),
        Probe(
            "replication",
            "warning",
            f"SELECT '', slot_name, CASE WHEN active THEN 'active' ELSE 'inactive' END, pg_wal_lsn_diff({_POSITION}, restart_lsn)::bigint / 1048576 "
            f"FROM pg_replication_slots WHERE pg_wal_lsn_diff({_POSITION}, restart_lsn) >= %(bytes)s * 16",
            "the replication slot {1!r} ({2}) retains {3} MB of the log",
            "let its consumer catch up, or SELECT pg_drop_replication_slot('{1}') if it has none",
        ),
        Probe(
            "replication",
            "warning",
            "SELECT '', coalesce(client_addr::text, 'local'), application_name, extract(epoch FROM replay_lag)::bigint FROM pg_stat_replication "
            "WHERE replay_lag >= make_interval(secs => %(seconds)s)",
            "the replica at {1} ({2}) is {3} seconds behind",
            "look for long queries on the replica, and for a slow network or disk",
        ),
        Probe(
            "privileges",
            "info",
            "SELECT '', current_user WHERE NOT pg_has_role('pg_read_all_stats', 'usage')",
            "the user {1!r} does not see the transactions and replicas of other users",
            "to see them, GRANT pg_read_all_stats TO the user",
        ),
    )
