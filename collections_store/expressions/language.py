"""MongoDB's language as of version 8.2: what differs or is absent here.

All other operators are as MongoDB's; the tables of the parsers declare them. Errors name an absent operator as one that is
not supported. `docs/reference/conformance.md` is made from these tables.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple


class LanguagePart(NamedTuple):
    """The operators in one place of the language."""

    differing: Mapping[str, str] = {}
    """The operators that differ, with the difference."""
    lacking: Mapping[str, str] = {}
    """The operators that are absent, by the reason."""

    @property
    def absent(self) -> frozenset[str]:
        return frozenset(name for names in self.lacking.values() for name in names.split())


_PATTERN: Final = "patterns are strings, of the library's own engine"
_ORDER: Final = "the values come in the order in which they first occur"
_JSON: Final = "the types are those of JSON; a time is a string"
_EXACT: Final = "the result is exact"
_PUSHED: Final = "without `$each` an error; MongoDB pushes the document"
LANGUAGE: Final[Mapping[str, LanguagePart]] = {
    "filters": LanguagePart(
        {
            "$jsonSchema": "needs the extra `schema`",
            "$regex": "patterns are of the library's own engine",
            "$text": "takes `$search` alone, in a language of its own",
            "$type": "the types are those of JSON; the names of others match nothing",
        },
        {
            "JavaScript": "$where",
            "geometry": "$box $center $centerSphere $geoIntersects $geoNear $geoWithin $geometry $maxDistance "
            "$minDistance $near $nearSphere $polygon $within",
            "use no sort for natural order": "$natural",
        },
    ),
    "projections": LanguagePart({"$meta": "of `textScore` only"}),
    "updates": LanguagePart(
        {
            "$currentDate": "a date is a string, a timestamp is microseconds since 1970",
            **dict.fromkeys(("$position", "$slice", "$sort"), _PUSHED),
        },
    ),
    "stages": LanguagePart(
        {
            "$documents": "within `$unionWith` and `$lookup` only",
            "$group": "the groups come in the order in which they first occur",
            "$lookup": "`let` defines no `CURRENT`; `foreignField` may be metadata",
            "$merge": "into the same database only, with strings as ids",
            "$out": "into the same database only, with strings as ids",
            "$sort": "ties keep their order",
        },
        {
            "stages of a server": "$changeStream $changeStreamSplitLargeEvent $collStats $currentOp $indexStats "
            "$listClusterCatalog $listLocalSessions $listSampledQueries $listSessions $planCacheStats $querySettings "
            "$queryStats $shardedDataDistribution",
            "geometry": "$geoNear",
            "use `search` and `nearest`": "$listSearchIndexes $rankFusion $score $scoreFusion $search "
            "$searchMeta $vectorSearch",
        },
    ),
    "accumulators": LanguagePart(
        {"$addToSet": _ORDER, "$median": _EXACT, "$percentile": _EXACT, "$setUnion": _ORDER},
        {"JavaScript": "$accumulator"},
    ),
    "window functions": LanguagePart(),
    "expressions": LanguagePart(
        {
            "$convert": _JSON,
            "$dateFromString": "without a format the string is ISO 8601",
            "$median": _EXACT,
            "$meta": "`textScore`, and the metadata of the store",
            "$percentile": _EXACT,
            **dict.fromkeys(("$regexFind", "$regexFindAll", "$regexMatch"), _PATTERN),
            "$toDate": _JSON,
            "$type": _JSON,
        },
        {
            "JavaScript": "$function",
            "encrypted fields": "$encStrContains $encStrEndsWith $encStrNormalizedEq $encStrStartsWith",
            "types that JSON lacks": "$binarySize $bsonSize $toDecimal $toHashedIndexKey $toObjectId $toUUID "
            "$tsIncrement $tsSecond",
            "use `nearest`": "$similarityCosine $similarityDotProduct $similarityEuclidean",
        },
    ),
    "variables": LanguagePart(
        lacking={"variables of a server": "$$CLUSTER_TIME $$SEARCH_META $$USER_ROLES"},
    ),
}
ABSENT: Final = {name: part.absent for name, part in LANGUAGE.items()}
"""The operators that are absent, in each place."""
