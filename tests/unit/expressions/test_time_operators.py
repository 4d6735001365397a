"""Operators on times: the examples of MongoDB's manual, and the edges of calendars and time zones."""

from datetime import UTC, datetime
from typing import Any

import pytest

from collections_store import InvalidFilter, InvalidOperand
from collections_store.document import Anonymous
from collections_store.expressions.evaluation import Scope
from collections_store.expressions.nodes import evaluate
from collections_store.expressions.parser import ExpressionParser
from collections_store.expressions.values import MISSING

NEW_YORK = "America/New_York"
BODY: dict[str, Any] = {
    "d": "2014-01-01T08:15:39.736000Z",  # as in the manual's examples of parts and formats
    "order": "2020-05-18T14:10:30.000000Z",  # as in the examples of $dateTrunc
    "wall": "2017-02-08T12:10:40.787",
    "nul": None,
    "s": "ada",
    "t": True,
    "a": [1],
}


def give(expression: Any) -> Any:
    parsed = ExpressionParser(InvalidFilter).parse(expression, "$expr")
    return evaluate(parsed, Scope(Anonymous(BODY)))


def time(text: str) -> str:
    """Return the form of a time."""
    found = datetime.fromisoformat(text).astimezone(UTC).replace(tzinfo=None)
    return f"{found.isoformat(timespec='microseconds')}Z"


def add(start: str, unit: str, amount: Any, **others: Any) -> Any:
    return {"$dateAdd": {"startDate": start, "unit": unit, "amount": amount, **others}}


def less(start: str, unit: str, amount: Any, **others: Any) -> Any:
    return {"$dateSubtract": {"startDate": start, "unit": unit, "amount": amount, **others}}


def between(start: str, end: str, unit: str, **others: Any) -> Any:
    return {"$dateDiff": {"startDate": start, "endDate": end, "unit": unit, **others}}


def cut(start: Any, unit: str, **others: Any) -> Any:
    return {"$dateTrunc": {"date": start, "unit": unit, **others}}


def written(pattern: Any, **others: Any) -> Any:
    return {"$dateToString": {"date": "$d", "format": pattern, **others}}


def read(text: Any, **others: Any) -> Any:
    return {"$dateFromString": {"dateString": text, **others}}


def of(**parts: Any) -> Any:
    return {"$dateFromParts": parts}


CASES: list[tuple[Any, Any]] = [
    # parts
    ({"$year": "$d"}, 2014),
    ({"$month": "$d"}, 1),
    ({"$dayOfMonth": ["$d"]}, 1),
    ({"$hour": "$d"}, 8),
    ({"$minute": "$d"}, 15),
    ({"$second": "$d"}, 39),
    ({"$millisecond": "$d"}, 736),
    ({"$dayOfYear": "$d"}, 1),
    ({"$dayOfWeek": "$d"}, 4),
    ({"$week": "$d"}, 0),
    ({"$hour": {"date": "$d", "timezone": NEW_YORK}}, 3),
    ({"$hour": {"date": "$d", "timezone": "+04:30"}}, 12),
    ({"$hour": {"date": "2016-01-01T00:00:00Z", "timezone": "-0530"}}, 18),
    ({"$minute": {"date": "2016-01-01T00:00:00Z", "timezone": "-0530"}}, 30),
    ({"$dayOfMonth": {"date": "2016-01-01T00:00:00Z", "timezone": "-05"}}, 31),
    ({"$hour": {"date": "2016-01-01T00:00:00Z", "timezone": "+0299"}}, 3),
    ({"$year": {"date": "$d", "timezone": "$nul"}}, None),
    ({"$year": "$nul"}, None),
    ({"$year": "$none"}, None),
    ({"$year": 0}, 1970),
    ({"$year": -1}, 1969),
    ({"$millisecond": 1.9}, 1),
    ({"$year": "0001-01-01T00:00:00Z"}, 1),
    ({"$year": "9999-12-31T23:59:59.999999Z"}, 9999),
    ({"$dayOfYear": "2024-12-31"}, 366),
    ({"$dayOfYear": "2023-12-31"}, 365),
    ({"$dayOfMonth": "2000-02-29"}, 29),
    # weeks at the ends of years
    ({"$isoWeek": "2015-11-06"}, 45),
    ({"$isoWeekYear": "2016-01-03"}, 2015),
    ({"$isoWeek": "2016-01-03"}, 53),
    ({"$isoWeekYear": "2018-12-31"}, 2019),
    ({"$isoWeek": "2018-12-31"}, 1),
    ({"$isoDayOfWeek": "2016-01-03"}, 7),
    ({"$dayOfWeek": "2016-01-03"}, 1),
    ({"$dayOfWeek": "2016-01-02"}, 7),
    ({"$week": "2016-01-02"}, 0),
    ({"$week": "2016-01-03"}, 1),
    ({"$week": "2017-01-01"}, 1),
    ({"$week": "2016-12-31"}, 52),
    # $dateAdd, $dateSubtract
    (add("2020-11-30T12:10:05Z", "day", 3), time("2020-12-03T12:10:05Z")),
    (add("2020-10-31T12:10:05Z", "month", 1), time("2020-11-30T12:10:05Z")),
    (add("2021-01-31", "month", 1), time("2021-02-28T00:00:00Z")),
    (add("2024-01-31", "month", 1), time("2024-02-29T00:00:00Z")),
    (add("2024-02-29", "year", 1), time("2025-02-28T00:00:00Z")),
    (add("2024-02-29", "year", -4), time("2020-02-29T00:00:00Z")),
    (add("2020-11-30", "quarter", 1), time("2021-02-28T00:00:00Z")),
    (add("2020-12-31", "month", -13), time("2019-11-30T00:00:00Z")),
    (add("2020-12-31", "week", -1), time("2020-12-24T00:00:00Z")),
    (add("2020-12-31T12:10:05Z", "millisecond", 2.0), time("2020-12-31T12:10:05.002Z")),
    (add("2020-12-31", "minute", 90), time("2020-12-31T01:30:00Z")),
    (add("2020-12-31T00:00:00.000001Z", "second", 0), time("2020-12-31T00:00:00.000001Z")),
    (add("$nul", "day", 1), None),
    (add("$d", "day", "$none"), None),
    (add("$d", "day", 1, timezone=None), None),
    (less("2020-12-31T12:10:05Z", "hour", 48), time("2020-12-29T12:10:05Z")),
    (less("2021-03-31", "month", 1), time("2021-02-28T00:00:00Z")),
    (less("2021-03-31", "month", -1), time("2021-04-30T00:00:00Z")),
    # the clock moves: days keep its hour, hours do not
    (add("2021-10-30T10:00:00Z", "day", 1, timezone="Europe/Paris"), time("2021-10-31T11:00:00Z")),
    (add("2021-10-30T10:00:00Z", "hour", 24, timezone="Europe/Paris"), time("2021-10-31T10:00:00Z")),
    (less("2021-10-31T11:00:00Z", "day", 1, timezone="Europe/Paris"), time("2021-10-30T10:00:00Z")),
    (add("2021-10-30T10:00:00Z", "month", 6, timezone="Europe/Paris"), time("2022-04-30T10:00:00Z")),
    (add("2021-03-27T01:30:00Z", "day", 1, timezone="Europe/Paris"), time("2021-03-28T01:30:00Z")),
    # $dateDiff counts the beginnings of units
    (between("2020-11-01T12:00:00Z", "2020-11-10T11:00:00Z", "day"), 9),
    (between("2021-01-01", "2021-12-31", "year"), 0),
    (between("2020-12-31T23:59:59Z", "2021-01-01T00:00:00Z", "year"), 1),
    (between("2021-01-01", "2021-12-31", "month"), 11),
    (between("2021-03-31", "2021-04-01", "quarter"), 1),
    (between("2021-04-01", "2021-03-31", "quarter"), -1),
    (between("2021-01-02", "2021-01-03", "week"), 1),  # a Sunday
    (between("2021-01-03", "2021-01-09", "week"), 0),
    (between("2021-01-03", "2021-01-04", "week", startOfWeek="Monday"), 1),
    (between("2021-01-02", "2021-01-03", "week", startOfWeek="mon"), 0),
    (between("2021-01-03", "2021-01-02", "week"), -1),
    (between("2021-01-02", "2021-01-03", "week", startOfWeek=None), None),
    (between("2021-01-02", "2021-01-03", "day", startOfWeek=None), 1),
    (between("2021-01-01T00:59:59Z", "2021-01-01T01:00:00Z", "hour"), 1),
    (between("2021-01-01T00:15:00Z", "2021-01-01T00:45:00Z", "hour", timezone="+05:30"), 1),
    (between("2021-10-30T00:00:00Z", "2021-11-01T00:00:00Z", "hour", timezone="Europe/Paris"), 48),
    (between("2021-10-30T22:00:00Z", "2021-10-31T23:00:00Z", "day", timezone="Europe/Paris"), 1),
    (between("2021-01-01", "2021-01-01T00:00:01.999999Z", "second"), 1),
    (between("2021-01-01", "2021-01-01T00:00:01.999999Z", "millisecond"), 1999),
    (between("0001-01-01", "9999-12-31", "day"), 3652058),
    (between("$nul", "2021-01-01", "day"), None),
    # $dateTrunc
    (cut("$order", "week", binSize=2, timezone="America/Los_Angeles", startOfWeek="Monday"),
     time("2020-05-11T07:00:00Z")),
    (cut("2021-03-20T11:30:05Z", "month"), time("2021-03-01T00:00:00Z")),
    (cut("2021-03-20T11:30:05Z", "month", binSize=2), time("2021-03-01T00:00:00Z")),
    (cut("2021-03-20T11:30:05Z", "quarter"), time("2021-01-01T00:00:00Z")),
    (cut("2021-03-20T11:30:05Z", "year", binSize=10), time("2020-01-01T00:00:00Z")),
    (cut("1999-12-31", "year", binSize=10), time("1990-01-01T00:00:00Z")),
    (cut("2021-03-20T11:30:05Z", "hour"), time("2021-03-20T11:00:00Z")),
    (cut("2021-03-20T11:30:05Z", "hour", binSize=2), time("2021-03-20T10:00:00Z")),
    (cut("2021-03-20T11:44:59.999999Z", "minute", binSize=15), time("2021-03-20T11:30:00Z")),
    (cut("2021-03-20T11:44:59.999999Z", "millisecond"), time("2021-03-20T11:44:59.999Z")),
    (cut("1969-12-31T23:59:59.5Z", "second"), time("1969-12-31T23:59:59Z")),
    (cut("2024-12-05", "day", binSize=7), time("2024-11-30T00:00:00Z")),
    (cut("2021-03-20T11:30:05Z", "week"), time("2021-03-14T00:00:00Z")),
    (cut("2021-03-20T11:30:05Z", "week", startOfWeek="FRIDAY"), time("2021-03-19T00:00:00Z")),
    (cut("2021-03-20T11:30:05Z", "week", startOfWeek=None), None),
    (cut("2021-03-20T11:30:05Z", "day", startOfWeek=None), time("2021-03-20T00:00:00Z")),
    (cut("2021-03-28T12:00:00Z", "day", timezone="Europe/Paris"), time("2021-03-27T23:00:00Z")),
    (cut("2021-03-29T12:00:00Z", "day", timezone="Europe/Paris"), time("2021-03-28T22:00:00Z")),
    (cut("2021-03-20T11:20:00Z", "hour", timezone="+05:30"), time("2021-03-20T10:30:00Z")),
    (cut("$nul", "day"), None),
    # $dateToParts, $dateFromParts
    ({"$dateToParts": {"date": "2017-01-01T01:29:09.123Z"}},
     {"year": 2017, "month": 1, "day": 1, "hour": 1, "minute": 29, "second": 9, "millisecond": 123}),
    ({"$dateToParts": {"date": "2017-01-01T01:29:09.123Z", "timezone": NEW_YORK}},
     {"year": 2016, "month": 12, "day": 31, "hour": 20, "minute": 29, "second": 9, "millisecond": 123}),
    ({"$dateToParts": {"date": "2017-01-01T01:29:09.123Z", "iso8601": True}},
     {"isoWeekYear": 2016, "isoWeek": 52, "isoDayOfWeek": 7,
      "hour": 1, "minute": 29, "second": 9, "millisecond": 123}),
    ({"$dateToParts": {"date": "$nul"}}, None),
    (of(year=2017, month=2, day=8, hour=12), time("2017-02-08T12:00:00Z")),
    (of(isoWeekYear=2017, isoWeek=6, isoDayOfWeek=3, hour=12), time("2017-02-08T12:00:00Z")),
    (of(year=2016, month=12, day=31, hour=23, minute=46, second=12, timezone=NEW_YORK),
     time("2017-01-01T04:46:12Z")),
    (of(year=2017, month=14, day=1, hour=12), time("2018-02-01T12:00:00Z")),
    (of(year=2017, month=0, day=1, hour=12), time("2016-12-01T12:00:00Z")),
    (of(year=2017, month=1, day=0), time("2016-12-31T00:00:00Z")),
    (of(year=2017, month=2, day=29), time("2017-03-01T00:00:00Z")),
    (of(year=2017, second=-1, millisecond=1500), time("2017-01-01T00:00:00.5Z")),
    (of(year=1970, second=1_517_253_119), time("2018-01-29T19:11:59Z")),
    (of(year=1970, millisecond=-1_000_000), time("1969-12-31T23:43:20Z")),
    (of(isoWeekYear=2017, isoWeek=0), time("2016-12-26T00:00:00Z")),
    (of(year=9999, month=12, day=31), time("9999-12-31T00:00:00Z")),
    (of(year=2021, month=3, day=28, hour=2, minute=30, timezone="Europe/Paris"),
     time("2021-03-28T01:30:00Z")),  # in the gap
    (of(year=2021, month=10, day=31, hour=2, minute=30, timezone="Europe/Paris"),
     time("2021-10-31T00:30:00Z")),  # the first of two
    (of(year=2017, month="$nul"), None),
    (of(year=2017, timezone="$none"), None),
    # $dateToString
    (written("%Y-%m-%d"), "2014-01-01"),
    (written("%H:%M:%S:%L%z", timezone=NEW_YORK), "03:15:39:736-0500"),
    (written("%H:%M:%S:%L%z", timezone="+04:30"), "12:45:39:736+0430"),
    (written("%Z", timezone=NEW_YORK), "-300"),
    (written("%Z", timezone="+04:30"), "270"),
    (written("%b %B", timezone="+04:30"), "Jan January"),
    (written("%G-W%V-%u %U %w %j %%"), "2014-W01-3 00 4 001 %"),
    (written(""), ""),
    ({"$dateToString": {"date": "$d"}}, "2014-01-01T08:15:39.736Z"),
    ({"$dateToString": {"date": "$d", "timezone": "GMT"}}, "2014-01-01T08:15:39.736Z"),
    ({"$dateToString": {"date": "$d", "timezone": NEW_YORK}}, "2014-01-01T03:15:39.736"),
    ({"$dateToString": {"date": "0001-01-01", "format": "%Y"}}, "0001"),
    ({"$dateToString": {"date": "$nul", "onNull": "none"}}, "none"),
    ({"$dateToString": {"date": "$none"}}, None),
    (written("$nul", onNull="none"), None),
    # $dateFromString
    (read("2017-02-08T12:10:40.787"), time("2017-02-08T12:10:40.787Z")),
    (read("$wall", timezone=NEW_YORK), time("2017-02-08T17:10:40.787Z")),
    (read("2017-02-08"), time("2017-02-08T00:00:00Z")),
    (read("2017-02-08T12:10:40.787+02:00"), time("2017-02-08T10:10:40.787Z")),
    (read("06-15-2018", format="%m-%d-%Y"), time("2018-06-15T00:00:00Z")),
    (read("15-06-2018", format="%d-%m-%Y"), time("2018-06-15T00:00:00Z")),
    (read("2018-W24-5", format="%G-W%V-%u"), time("2018-06-15T00:00:00Z")),
    (read("2018 166", format="%Y %j"), time("2018-06-15T00:00:00Z")),
    (read("15 Jun 2018", format="%d %b %Y"), time("2018-06-15T00:00:00Z")),
    (read("15 may 2018", format="%d %B %Y"), time("2018-05-15T00:00:00Z")),
    (read("2018-06-15T10:20:30.4+0200", format="%Y-%m-%dT%H:%M:%S.%L%z"), time("2018-06-15T08:20:30.4Z")),
    (read("2018-06-15 +60", format="%Y-%m-%d %Z"), time("2018-06-14T23:00:00Z")),
    (read("2018-06-15 10h", format="%Y-%m-%d %Hh", timezone="+02"), time("2018-06-15T08:00:00Z")),
    (read("20177-02-09T03:35:02.055", onError="$s"), "ada"),
    (read("2018-02-30", format="%Y-%m-%d", onError=0), 0),
    (read(5, onError="no string"), "no string"),
    (read("$nul", onNull=0), 0),
    (read("$none"), None),
    (read("2018", format="$nul"), None),
    # conversions
    ({"$toDate": 120000000000.5}, time("1973-10-20T21:20:00Z")),
    ({"$toDate": 1100000000000}, time("2004-11-09T11:33:20Z")),
    ({"$toDate": -1100000000000}, time("1935-02-22T12:26:40Z")),
    ({"$toDate": "2018-03-20"}, time("2018-03-20T00:00:00Z")),
    ({"$toDate": "2018-03-20 12:00:00 +05:00".replace(" +", "+")}, time("2018-03-20T07:00:00Z")),
    ({"$toDate": "$nul"}, None),
    ({"$convert": {"input": "Friday", "to": "date", "onError": "no time"}}, "no time"),
    ({"$convert": {"input": "$t", "to": "date", "onError": "no time"}}, "no time"),
    ({"$convert": {"input": "$d", "to": 9}}, BODY["d"]),
    ({"$toLong": "$d"}, 1388564139736),
    ({"$toDouble": "$d"}, 1388564139736.0),
    ({"$toBool": "$d"}, True),
    ({"$toString": "$d"}, BODY["d"]),
    # arithmetic and comparison
    ({"$add": ["$d", 264]}, time("2014-01-01T08:15:40Z")),
    ({"$add": [1000, "$d", -1000]}, BODY["d"]),
    ({"$add": ["$d", "$nul"]}, None),
    ({"$subtract": ["$order", "$d"]}, 201246890264),
    ({"$subtract": ["$d", 736]}, time("2014-01-01T08:15:39Z")),
    ({"$subtract": ["$d", "$none"]}, None),
    ({"$lt": ["$d", "$order"]}, True),
    ({"$max": ["$d", "$order"]}, BODY["order"]),
]  # fmt: skip


@pytest.mark.parametrize(("expression", "expected"), CASES, ids=lambda each: str(each)[:70])
def test_times(expression: Any, expected: Any) -> None:
    found = give(expression)
    assert found == expected
    assert type(found) is type(expected)


ERRORS: list[tuple[Any, str]] = [
    ({"$year": "$s"}, r"\$year requires a time in ISO 8601, such as .*, got 'ada'"),
    (
        {"$year": "$t"},
        r"\$year requires a time, as an ISO 8601 string or milliseconds .*, got True",
    ),
    ({"$year": "$a"}, "requires a time"),
    ({"$year": 10**18}, "years 1 to 9999"),
    (
        {"$year": {"date": "$d", "timezone": "Nowhere"}},
        "time zone such as Europe/Berlin or .*, got 'Nowhere'",
    ),
    ({"$year": {"date": "$d", "timezone": "+25:00"}}, "time zone"),
    ({"$year": {"date": "$d", "timezone": "+02:"}}, "time zone"),
    ({"$year": {"date": "$d", "timezone": "../x"}}, "time zone"),
    ({"$toDate": "2016-12-31T23:59:60Z"}, "requires a time in ISO 8601"),
    (read("23:59:60 2016-12-31", format="%H:%M:%S %Y-%m-%d"), "cannot read"),
    (read("2016-12-31 +02:", format="%Y-%m-%d %z"), "cannot read"),
    ({"$year": {"date": "$d", "timezone": 5}}, "requires a string, got 5"),
    ({"$year": {"date": "9999-12-31T23:00:00Z", "timezone": "+02:00"}}, "years 1 to 9999"),
    (add("$d", "days", 1), "unit of year, quarter, month, week, day, .*, got 'days'"),
    (add("$d", "day", 1.5), "integer"),
    (add("$d", "day", 10**12), "years 1 to 9999"),
    (add("$d", "year", 8000), "years 1 to 9999"),
    (add("$d", "month", -(10**6)), "years 1 to 9999"),
    (less("0001-01-01", "millisecond", 1), "years 1 to 9999"),
    (between("$d", "$order", "week", startOfWeek="x"), "day of the week such as monday, got 'x'"),
    (cut("$d", "day", binSize=0), "integer from 1"),
    (cut("1999-12-31", "year", binSize=10**9), "years 1 to 9999"),
    (cut("$d", "day", binSize=10**12), "years 1 to 9999"),
    ({"$dateToParts": {"date": "$d", "iso8601": 1}}, "iso8601 must be true or false"),
    (of(year=0), "integer from 1 to 9999"),
    (of(year=10000), "integer from 1 to 9999"),
    (of(year=9999, month=13), "years 1 to 9999"),
    (of(year=2017, day=32768), "integer from -32768 to 32767"),
    (of(year=2017, millisecond=2**63 - 1), "years 1 to 9999"),
    (of(year="x"), "integer"),
    (written("%q"), "format of .*, got %q"),
    (written("%"), "format of"),
    (written(5), "requires a string"),
    (read("ada"), "ISO 8601"),
    (read("2018-06", format="%Y-%m"), "cannot read '2018-06' by the format '%Y-%m'"),
    (read("2018-366", format="%Y-%j"), "cannot read"),
    (read("2018-06-15", format="%Y-%m-%Y"), "each specifier once"),
    (read("2018-06-15", format="%U", onError=1), "format of"),
    (read("$nul", format="%U", onNull=1), "format of"),
    (read("$none", timezone="Nowhere"), "time zone"),
    ({"$dateToString": {"date": "$nul", "format": "%q", "onNull": 1}}, "format of"),
    ({"$dateToString": {"date": "$none", "format": 5}}, "requires a string"),
    ({"$dateToString": {"date": "$none", "timezone": "Nowhere"}}, "time zone"),
    (read("2017-02-08T12:10:40Z", timezone=NEW_YORK), "no timezone beside"),
    (read("2017-02-08", timezone="Nowhere", onError=1), "time zone"),
    (read({"$toInt": "x"}, onError=1), r"\$toInt cannot read"),
    ({"$toDate": True}, "requires a time"),
    ({"$toInt": "$d"}, "cannot read"),
    ({"$add": ["$d", "$d"]}, r"\$add requires a number"),
    ({"$subtract": [5, "$d"]}, "requires a number"),
    ({"$add": ["$d", 10**16]}, "years 1 to 9999"),
]


@pytest.mark.parametrize(("expression", "message"), ERRORS, ids=lambda each: str(each)[:70])
def test_invalid_operands(expression: Any, message: str) -> None:
    with pytest.raises(InvalidOperand, match=message):
        give(expression)


@pytest.mark.parametrize(
    ("expression", "message"),
    [
        ({"$year": {"timezone": "UTC"}}, r"\$year': requires date"),
        ({"$year": ["$d", "$d"]}, r"\$year': takes 1 operand"),
        ({"$dateAdd": "$d"}, "must be a document of startDate, unit, amount, timezone"),
        ({"$dateAdd": {"startDate": "$d", "unit": "day"}}, "requires amount"),
        ({"$dateToString": {"date": "$d", "onError": 1}}, "must be one of date, timezone, format, onNull"),
        (of(month=1), "requires year"),
        (of(isoWeekYear=2017, month=1), r"month': must be one of isoWeekYear"),
    ],
)  # fmt: skip
def test_invalid_syntax(expression: Any, message: str) -> None:
    with pytest.raises(InvalidFilter, match=message):
        give(expression)


def test_a_missing_time_is_null_not_missing() -> None:
    assert give({"$year": "$none"}) is not MISSING


@pytest.mark.parametrize("operand", [None, "$none"])
def test_a_format_of_null_or_missing_gives_null(operand: Any) -> None:
    at = "2024-01-01T00:00:00Z"
    assert give({"$dateToString": {"date": at, "format": operand}}) is None
    assert give({"$dateFromString": {"dateString": at, "format": operand}}) is None
