"""MongoDB's language as of version 8.2: the names of its operators, and what differs or is absent here.

Errors name an absent operator as one that is not supported. `docs/reference/conformance.md` is made from this table.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple


class LanguagePart(NamedTuple):
    """The operators in one place of the language."""

    like: str
    """The operators that are as MongoDB's."""
    differing: Mapping[str, str] = {}
    """The operators that differ, with the difference."""
    lacking: Mapping[str, str] = {}
    """The operators that are absent, by the reason."""

    @property
    def absent(self) -> frozenset[str]:
        return frozenset(name for names in self.lacking.values() for name in names.split())

    @property
    def names(self) -> frozenset[str]:
        return self.absent | self.differing.keys() | set(self.like.split())


_PATTERN: Final = "patterns are strings, of the library's own engine"
_ORDER: Final = "the values come in the order in which they first occur"
_JSON: Final = "the types are those of JSON; a time is a string"
_EXACT: Final = "the result is exact"
_PUSHED: Final = "without `$each` an error; MongoDB pushes the document"
LANGUAGE: Final[Mapping[str, LanguagePart]] = {
    "filters": LanguagePart(
        "$all $and $bitsAllClear $bitsAllSet $bitsAnyClear $bitsAnySet $comment $elemMatch $eq $exists $expr $gt "
        "$gte $in $lt $lte $mod $ne $nin $nor $not $options $or $sampleRate $size",
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
    "projections": LanguagePart("$ $elemMatch $slice", {"$meta": "of `textScore` only"}),
    "updates": LanguagePart(
        "$ $[] $[<identifier>] $addToSet $bit $each $inc $max $min $mul $pop $pull $pullAll $push $rename $set "
        "$setOnInsert $unset",
        {
            "$currentDate": "a date is a string, a timestamp is microseconds since 1970",
            **dict.fromkeys(("$position", "$slice", "$sort"), _PUSHED),
        },
    ),
    "stages": LanguagePart(
        "$addFields $bucket $bucketAuto $count $densify $facet $fill $graphLookup $limit $match $project $redact "
        "$replaceRoot $replaceWith $sample $set $setWindowFields $skip $sortByCount $unionWith $unset $unwind",
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
        "$avg $bottom $bottomN $concatArrays $count $first $firstN $last $lastN $max $maxN $mergeObjects $min $minN "
        "$push $stdDevPop $stdDevSamp $sum $top $topN",
        {"$addToSet": _ORDER, "$median": _EXACT, "$percentile": _EXACT, "$setUnion": _ORDER},
        {"JavaScript": "$accumulator"},
    ),
    "window functions": LanguagePart(
        "$covariancePop $covarianceSamp $denseRank $derivative $documentNumber $expMovingAvg $integral $linearFill "
        "$locf $minMaxScaler $rank $shift"
    ),
    "expressions": LanguagePart(
        "$abs $acos $acosh $add $allElementsTrue $and $anyElementTrue $arrayElemAt $arrayToObject $asin $asinh $atan "
        "$atan2 $atanh $avg $bitAnd $bitNot $bitOr $bitXor $ceil $cmp $concat $concatArrays $cond $cos $cosh $dateAdd "
        "$dateDiff $dateFromParts $dateSubtract $dateToParts $dateToString $dateTrunc $dayOfMonth $dayOfWeek "
        "$dayOfYear $degreesToRadians $divide $eq $exp $filter $first $firstN $floor $getField $gt $gte $hour $ifNull "
        "$in $indexOfArray $indexOfBytes $indexOfCP $isArray $isNumber $isoDayOfWeek $isoWeek $isoWeekYear $last "
        "$lastN $let $literal $ln $log $log10 $lt $lte $ltrim $map $max $maxN $mergeObjects $millisecond $min $minN "
        "$minute $mod $month $multiply $ne $not $objectToArray $or $pow $radiansToDegrees $rand $range $reduce "
        "$replaceAll $replaceOne $reverseArray $round $rtrim $second $setDifference $setEquals $setField "
        "$setIntersection $setIsSubset $setUnion $sigmoid $sin $sinh $size $slice $sortArray $split $sqrt $stdDevPop "
        "$stdDevSamp $strLenBytes $strLenCP $strcasecmp $substr $substrBytes $substrCP $subtract $sum $switch $tan "
        "$tanh $toBool $toDouble $toInt $toLong $toLower $toString $toUpper $trim $trunc $unsetField $week $year $zip",
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
        "$$CURRENT $$DESCEND $$KEEP $$NOW $$PRUNE $$REMOVE $$ROOT",
        {},
        {"variables of a server": "$$CLUSTER_TIME $$SEARCH_META $$USER_ROLES"},
    ),
}
ABSENT: Final = {name: part.absent for name, part in LANGUAGE.items()}
"""The operators that are absent, in each place."""
