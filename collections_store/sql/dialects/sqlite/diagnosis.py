"""Probes for problems of an SQLite file."""

from __future__ import annotations

from ..protocols import Diagnosis, Probe


class SqliteDiagnosis(Diagnosis):
    """Integrity and free pages. SQLite keeps no statistics of reads."""

    tables = (
        "SELECT t.name, i.name FROM sqlite_master AS t LEFT JOIN sqlite_master AS i ON i.type = 'index' "
        "AND i.tbl_name = t.name WHERE t.type = 'table' AND substr(t.name, 1, length(:prefix)) = :prefix"
    )
    index_sizes = (
        "SELECT n.value, sum(d.pgsize), NULL FROM json_each(:names) AS n CROSS JOIN sqlite_master AS m "
        "ON m.name = n.value OR substr(m.name, 1, length(n.value) + 1) IN (n.value || '_', n.value || '$') "
        "CROSS JOIN dbstat AS d ON d.name = m.name AND d.aggregate = 1 GROUP BY n.value"
    )
    index_sizes_need = "SELECT 1 FROM pragma_module_list WHERE name = 'dbstat'"
    reads_for_index_sizes = True
    probes = (
        Probe(
            "integrity",
            "error",
            "SELECT '', quick_check FROM pragma_quick_check(10) WHERE quick_check <> 'ok'",
            "the file is damaged: {1}",
            "restore the file from a backup; to save what can be read, export the collections",
        ),
        Probe(
            "bloat",
            "info",
            "SELECT '', freelist_count * page_size / 1048576, 100 * freelist_count / page_count "
            "FROM pragma_freelist_count, pragma_page_count, pragma_page_size "
            "WHERE freelist_count * page_size >= :bytes AND freelist_count * 4 >= page_count",
            "{1} MB of the file ({2} %) are free pages, which later writes use again",
            "to give the space back, run VACUUM while nobody writes",
        ),
        Probe(
            "scans",
            "info",
            "SELECT ''",
            "SQLite does not count scans: missing and unused indexes were not looked for",
            "use explain on the filters of your program",
        ),
    )
