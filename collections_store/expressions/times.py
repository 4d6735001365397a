"""Times: what dates are in MongoDB. An operand is a string of ISO 8601 or milliseconds since 1970; a result has the form
of `codec.times`.

Years, months, weeks and days are counted in a time zone, on its clock. Hours and shorter units are counted exactly.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta, timezone, tzinfo
from functools import lru_cache
from typing import Any, Final

from ..codec.times import iso
from ..document import EPOCH
from . import numbers
from .evaluation import OperandError, integer, is_null, named, number, result, string
from .values import is_number

_FORM: Final = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z", re.ASCII)
_OFFSET: Final = re.compile(r"([+-])(\d\d)(?::?(\d\d))?", re.ASCII)
_DAYS: Final = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
_MONTHS_NAMED: Final = (
    "January", "February", "March", "April", "May", "June", "July", "August", "September",
    "October", "November", "December",
)  # fmt: skip
_MONTHS: Final = {"year": 12, "quarter": 3, "month": 1}
_WHOLE_DAYS: Final = {"week": 7, "day": 1}
_MICROSECONDS: Final = {
    "hour": 3_600_000_000,
    "minute": 60_000_000,
    "second": 1_000_000,
    "millisecond": 1000,
}
MILLISECONDS: Final = {name: size // 1000 for name, size in _MICROSECONDS.items()} | {
    name: days * 86_400_000 for name, days in _WHOLE_DAYS.items()
}
"""The units of a fixed length."""
UNITS: Final = (*_MONTHS, *_WHOLE_DAYS, *_MICROSECONDS)
_FIRST: Final = datetime(2000, 1, 1)
"""The beginning of the first period of `$dateTrunc`; weeks begin at the next first day of a week."""
_MICROSECOND: Final = timedelta(microseconds=1)
_ISO: Final = object()
"""The format of an operator without a `format`."""


class ConversionError(OperandError):
    """A value cannot be converted: `onError` replaces this error, and no other."""


def _beyond() -> OperandError:
    return ConversionError("gives a time beyond the years 1 to 9999")


# -- operands ----------------------------------------------------------------------------------


def instant(value: Any) -> datetime:
    """Return the time of an ISO 8601 string, UTC without a zone, or of milliseconds since 1970."""
    if isinstance(value, str):
        found = _parsed(value)
        return found.replace(tzinfo=UTC) if found.tzinfo is None else _shifted(found, UTC)
    if is_number(value):
        try:
            return EPOCH + timedelta(milliseconds=int(value))
        except OverflowError:
            raise _beyond() from None
    problem = (
        f"requires a time, as an ISO 8601 string or milliseconds since 1970, got {named(value)}"
    )
    raise ConversionError(problem, value)


def _parsed(text: str) -> datetime:
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        problem = f"requires a time in ISO 8601, such as 2026-11-22T10:00:00Z, got {named(text)}"
        raise ConversionError(problem, text) from None


def zone(value: Any) -> tzinfo:
    """Return the time zone of a name such as Europe/Berlin, or of an offset such as +02:00."""
    return _zone(string(value))


@lru_cache(maxsize=256)
def _zone(name: str) -> tzinfo:
    if name in {"UTC", "GMT", "Z"}:
        return UTC
    if offset := _OFFSET.fullmatch(name):
        sign, hours, minutes = offset.groups("0")
        ahead = timedelta(hours=int(hours), minutes=int(minutes))
        if ahead < timedelta(days=1):
            return timezone(-ahead if sign == "-" else ahead)
    else:
        from zoneinfo import ZoneInfo

        try:
            return ZoneInfo(name)
        except (KeyError, ValueError, OSError):
            pass
    problem = f"requires a time zone such as Europe/Berlin or +02:00, got {named(name)}"
    raise OperandError(problem, name)


def unit(value: Any) -> str:
    """Return a unit of time."""
    if value not in UNITS:
        raise OperandError(f"requires a unit of {', '.join(UNITS)}, got {named(value)}", value)
    return str(value)


def _weekday(value: Any) -> int:
    """Return the number of a day of the week, Monday 0, by its name or the first three letters."""
    name = value.lower() if isinstance(value, str) else ""
    for day, each in enumerate(_DAYS):
        if name in {each, each[:3]}:
            return day
    raise OperandError(f"requires a day of the week such as monday, got {named(value)}", value)


def _shifted(time: datetime, to: tzinfo) -> datetime:
    try:
        return time.astimezone(to)
    except (OverflowError, ValueError):
        raise _beyond() from None


def _clock(time: datetime, at: tzinfo) -> datetime:
    """Return what a clock shows in a time zone."""
    return _shifted(time, at).replace(tzinfo=None)


def _instant_of(clock: datetime, at: tzinfo) -> str:
    """Return the time at which a clock shows `clock`: the first of two, and the one after a gap."""
    return iso(_shifted(clock.replace(tzinfo=at), UTC))


# -- parts -------------------------------------------------------------------------------------

PARTS: Final[dict[str, Callable[[datetime], int]]] = {
    "$year": lambda clock: clock.year,
    "$month": lambda clock: clock.month,
    "$dayOfMonth": lambda clock: clock.day,
    "$dayOfWeek": lambda clock: clock.isoweekday() % 7 + 1,
    "$dayOfYear": lambda clock: clock.timetuple().tm_yday,
    "$hour": lambda clock: clock.hour,
    "$minute": lambda clock: clock.minute,
    "$second": lambda clock: clock.second,
    "$millisecond": lambda clock: clock.microsecond // 1000,
    "$week": lambda clock: (clock.timetuple().tm_yday + 6 - clock.isoweekday() % 7) // 7,
    "$isoWeek": lambda clock: clock.isocalendar().week,
    "$isoWeekYear": lambda clock: clock.isocalendar().year,
    "$isoDayOfWeek": lambda clock: clock.isoweekday(),
}
"""The operators that return a part of a time, by what a clock shows."""


def part(name: str, time: datetime, at: tzinfo) -> int:
    """Return a part of a time."""
    return PARTS[name](_clock(time, at))


def to_parts(time: datetime, at: tzinfo, by_week: Any) -> dict[str, int]:
    """Return the parts of a time; `by_week`: with the week of ISO 8601 in place of month and day."""
    if not isinstance(by_week, bool):
        raise OperandError(f"iso8601 must be true or false, got {named(by_week)}", by_week)
    days = ("isoWeekYear", "isoWeek", "isoDayOfWeek") if by_week else ("year", "month", "day")
    names, clock = (*days, "hour", "minute", "second", "millisecond"), _clock(time, at)
    return {name: PARTS["$dayOfMonth" if name == "day" else f"${name}"](clock) for name in names}


def from_parts(by_week: bool, year: Any, *parts: Any) -> str:
    """Return the time of parts; a part out of its range carries to the next larger part."""
    *large, second, milli, at = parts
    month, day, hour, minute = (integer(n, -(2**15), 2**15 - 1) for n in large)
    second, milli = integer(second), integer(milli)  # MongoDB bounds only the others
    year = integer(year, 1, 9999)
    try:
        if by_week:
            first, days = date.fromisocalendar(year, 1, 1), 7 * (month - 1) + day - 1
        else:
            years, months = divmod(month - 1, 12)
            first, days = date(year + years, months + 1, 1), day - 1
        clock = datetime(first.year, first.month, first.day) + timedelta(
            days=days, hours=hour, minutes=minute, seconds=second, milliseconds=milli
        )
    except (ValueError, OverflowError):
        raise _beyond() from None
    return _instant_of(clock, at)


# -- calculation -------------------------------------------------------------------------------


def add(time: datetime, by: str, amount: int, at: tzinfo) -> str:
    """Return the time `amount` units later; a day beyond the end of a month becomes the last day."""
    if amount == 0:
        return iso(time)
    try:
        if by in _MICROSECONDS:
            return iso(time + timedelta(microseconds=amount * _MICROSECONDS[by]))
        clock = _clock(time, at)
        if by in _WHOLE_DAYS:
            return _instant_of(clock + timedelta(days=amount * _WHOLE_DAYS[by]), at)
        months = clock.year * 12 + clock.month - 1 + amount * _MONTHS[by]
        year, month = divmod(months, 12)
        from calendar import monthrange  # takes as long to import as all else here

        day = min(clock.day, monthrange(year, month + 1)[1])
        return _instant_of(clock.replace(year=year, month=month + 1, day=day), at)
    except (OverflowError, ValueError):
        raise _beyond() from None


def subtract(time: datetime, by: str, amount: int, at: tzinfo) -> str:
    """Return the time `amount` units earlier."""
    return add(time, by, -amount, at)


def difference(start: datetime, end: datetime, by: str, at: tzinfo, week_start: Any) -> int | None:
    """Return how many units begin after one time, up to the other."""
    if by in _MICROSECONDS:
        size = _MICROSECONDS[by]
        (since, ahead), (until, later) = _ticks(start, at), _ticks(end, at)
        return (until + later) // size - (since + ahead) // size - (later - ahead) // size
    first, last = _clock(start, at), _clock(end, at)
    if by == "day":
        return last.toordinal() - first.toordinal()
    if by == "week":
        if is_null(week_start):
            return None
        shift = 1 + _weekday(week_start)  # the day 1 is a Monday
        return (last.toordinal() - shift) // 7 - (first.toordinal() - shift) // 7
    size = _MONTHS[by]
    return _month(last) // size - _month(first) // size


def _ticks(time: datetime, at: tzinfo) -> tuple[int, int]:
    """Return the microseconds since 1970, and those that a clock is ahead of UTC."""
    ahead = _shifted(time, at).utcoffset() or timedelta()
    return (time - EPOCH) // _MICROSECOND, ahead // _MICROSECOND


def _month(clock: datetime) -> int:
    return clock.year * 12 + clock.month - 1


def truncated(time: datetime, by: str, size: int, at: tzinfo, week_start: Any) -> str | None:
    """Return the beginning of the period of `size` units that holds the time."""
    try:
        if by in _MICROSECONDS:
            period = timedelta(microseconds=size * _MICROSECONDS[by])
            first = _FIRST.replace(tzinfo=at).astimezone(UTC)
            return iso(first + (time - first) // period * period)
        clock = _clock(time, at)
        if by in _WHOLE_DAYS:
            if by == "week" and is_null(week_start):
                return None
            shift = (_weekday(week_start) - _FIRST.weekday()) % 7 if by == "week" else 0
            first, period = _FIRST + timedelta(days=shift), timedelta(days=size * _WHOLE_DAYS[by])
            return _instant_of(first + (clock - first) // period * period, at)
        months, origin = size * _MONTHS[by], _month(_FIRST)
        year, month = divmod(origin + (_month(clock) - origin) // months * months, 12)
        return _instant_of(_FIRST.replace(year=year, month=month + 1), at)
    except (OverflowError, ValueError):
        raise _beyond() from None


def plus(*operands: Any) -> Any:
    """Return the sum of numbers, or a time later by the milliseconds of the other operands; null, if one is null."""
    given = [each for each in operands if is_time(each)]
    if len(given) != 1:
        return numbers.add(*operands)
    later = numbers.add(*(each for each in operands if each is not given[0]))
    return None if later is None else _later(given[0], later)


def minus(left: Any, right: Any) -> Any:
    """Return the difference of two numbers, or of two times in milliseconds, or a time earlier by milliseconds."""
    if not is_time(left):
        return result(number(left) - number(right))
    if is_time(right):
        return milliseconds(left) - milliseconds(right)
    return _later(left, -number(right))


def _later(time: str, by: float) -> str:
    try:
        return iso(instant(time) + timedelta(milliseconds=by))
    except OverflowError:
        raise _beyond() from None


def is_time(value: Any) -> bool:
    """Return whether a value is a string in the form of times."""
    return isinstance(value, str) and _FORM.fullmatch(value) is not None


def milliseconds(value: str) -> int:
    """Return the milliseconds from 1970 to a time, rounded down."""
    return (instant(value) - EPOCH) // timedelta(milliseconds=1)


# -- strings -----------------------------------------------------------------------------------


def _offset(clock: datetime) -> str:
    minutes = _minutes(clock)
    return f"{'-' if minutes < 0 else '+'}{abs(minutes) // 60:02}{abs(minutes) % 60:02}"


def _minutes(clock: datetime) -> int:
    return (clock.utcoffset() or timedelta()) // timedelta(minutes=1)


_WRITERS: Final[dict[str, Callable[[datetime], str]]] = {
    "Y": lambda clock: f"{clock.year:04}",
    "m": lambda clock: f"{clock.month:02}",
    "d": lambda clock: f"{clock.day:02}",
    "H": lambda clock: f"{clock.hour:02}",
    "M": lambda clock: f"{clock.minute:02}",
    "S": lambda clock: f"{clock.second:02}",
    "L": lambda clock: f"{clock.microsecond // 1000:03}",
    "j": lambda clock: f"{PARTS['$dayOfYear'](clock):03}",
    "b": lambda clock: _MONTHS_NAMED[clock.month - 1][:3],
    "B": lambda clock: _MONTHS_NAMED[clock.month - 1],
    "w": lambda clock: str(PARTS["$dayOfWeek"](clock)),
    "u": lambda clock: str(clock.isoweekday()),
    "U": lambda clock: f"{PARTS['$week'](clock):02}",
    "V": lambda clock: f"{clock.isocalendar().week:02}",
    "G": lambda clock: f"{clock.isocalendar().year:04}",
    "z": _offset,
    "Z": lambda clock: str(_minutes(clock)),
    "%": lambda _: "%",
}
_READERS: Final = {
    "Y": r"(?P<Y>\d{4})", "m": r"(?P<m>\d{1,2})", "d": r"(?P<d>\d{1,2})", "H": r"(?P<H>\d{1,2})",
    "M": r"(?P<M>\d{1,2})", "S": r"(?P<S>\d{1,2})", "L": r"(?P<L>\d{1,3})", "j": r"(?P<j>\d{3})",
    "b": r"(?P<b>[A-Za-z]{3})", "B": r"(?P<b>[A-Za-z]+)", "u": r"(?P<u>[1-7])",
    "V": r"(?P<V>\d{2})", "G": r"(?P<G>\d{4})", "z": r"(?P<z>Z|UTC|[+-]\d\d(?::?\d\d)?)",
    "Z": r"(?P<Z>[+-]\d{1,4})", "%": "%",
}  # fmt: skip
_DATES: Final = ({"Y", "m", "d"}, {"Y", "b", "d"}, {"Y", "j"}, {"G", "V", "u"})
"""The specifiers that make a date; without those of a time of day it is midnight."""


def to_string(time: Any, at: Any, pattern: Any = _ISO) -> str | None:
    """Return a time in a format, by default with milliseconds, and `Z` in UTC. The zone and the format are checked also
    for a time of null.
    """
    where = None if is_null(at) else zone(at)
    if pattern is _ISO:
        pattern = "%Y-%m-%dT%H:%M:%S.%L" + "Z" * (where is UTC)
    pieces = None if is_null(pattern) else _pieces(string(pattern), frozenset(_WRITERS))
    if is_null(time) or where is None or pieces is None:
        return None
    clock, found = _shifted(instant(time), where), []
    for text, specifier in pieces:
        found.append(text)
        if specifier:
            found.append(_WRITERS[specifier](clock))
    return "".join(found)


@lru_cache(maxsize=256)
def _pieces(pattern: str, known: frozenset[str]) -> tuple[tuple[str, str], ...]:
    """Return pairs of a text and the specifier behind it."""
    first, *others = re.split("%(.?)", pattern, flags=re.DOTALL)
    texts = [first, *others[1::2]]
    for each in others[::2]:
        if each not in known:
            names = ", ".join(f"%{name}" for name in sorted(known))
            raise OperandError(f"requires a format of {names}, got %{each}", pattern)
    return tuple(zip(texts, [*others[::2], ""], strict=True))


def from_string(text: Any, at: Any, pattern: Any = _ISO) -> str | None:
    """Return the time of a string; the time zone is that of a string without one. The zone and the format are checked
    also for null in place of the string.
    """
    where = None if is_null(at) else zone(at)
    if pattern is not _ISO and not is_null(pattern):
        _pieces(string(pattern), frozenset(_READERS))
    if is_null(text) or where is None or is_null(pattern):
        return None
    if not isinstance(text, str):
        raise ConversionError(f"requires a string, got {named(text)}", text)
    found = _parsed(text) if pattern is _ISO else _by_format(text, pattern)
    if found.tzinfo is None:
        return _instant_of(found, where)
    if where is not UTC:
        problem = f"requires no timezone beside the one in the string, got {named(text)}"
        raise ConversionError(problem, text)
    return iso(_shifted(found, UTC))


def _by_format(text: str, pattern: str) -> datetime:
    pieces = _pieces(pattern, frozenset(_READERS))
    try:
        expression = "".join(re.escape(t) + (_READERS[s] if s else "") for t, s in pieces)
        match = re.fullmatch(expression, text, re.ASCII)
    except re.error:  # two groups of one name
        raise OperandError("requires each specifier once", pattern) from None
    try:
        if match is not None:
            return _of_groups(match.groupdict())
    except (ValueError, OverflowError, OperandError):
        pass
    raise ConversionError(f"cannot read {named(text)} by the format {named(pattern)}", text)


def _of_groups(given: dict[str, str]) -> datetime:
    """Return the time of the matched specifiers; raise `ValueError`."""
    if not any(each <= given.keys() for each in _DATES):
        raise ValueError
    numbers = {name: int(each) for name, each in given.items() if name not in "bz"}
    if "b" in given:
        names = [name for each in _MONTHS_NAMED for name in (each.lower(), each[:3].lower())]
        numbers["m"] = names.index(given["b"].lower()) // 2 + 1
    if "G" in numbers:
        day = date.fromisocalendar(numbers["G"], numbers["V"], numbers["u"])
    elif "j" in numbers:
        day = date(numbers["Y"], 1, 1) + timedelta(days=numbers["j"] - 1)
        if day.year != numbers["Y"]:
            raise ValueError
    else:
        day = date(numbers["Y"], numbers["m"], numbers["d"])
    fraction = int(given.get("L", "0").ljust(3, "0")) * 1000
    hour, minute, second = (numbers.get(each, 0) for each in "HMS")
    at: tzinfo | None = None
    if "z" in given:
        at = zone(given["z"])
    elif "Z" in numbers:
        at = timezone(timedelta(minutes=numbers["Z"]))
    return datetime(day.year, day.month, day.day, hour, minute, second, fraction, at)
