"""Names of time zones: Java's, which Spark takes, as those that Arrow and Python know."""

from __future__ import annotations

import re
from datetime import datetime, timezone, tzinfo
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from tfrecord_io.options import no_time_zone

_OFFSET = re.compile(
    r"(?:GMT|UTC|UT)?(?P<sign>[+-])(?P<hours>\d{1,2})(?::?(?P<minutes>\d{2})(?::?00)?)?"
)
#: Of ``java.time.ZoneId.SHORT_IDS``, which Spark takes, and Java's names for UTC.
_SHORT_ZONES = {
    "Z": "UTC",
    "UT": "UTC",
    "EST": "-05:00",
    "MST": "-07:00",
    "HST": "-10:00",
    "ACT": "Australia/Darwin",
    "AET": "Australia/Sydney",
    "ART": "Africa/Cairo",
    "AGT": "America/Argentina/Buenos_Aires",
    "AST": "America/Anchorage",
    "BET": "America/Sao_Paulo",
    "BST": "Asia/Dhaka",
    "CAT": "Africa/Harare",
    "CNT": "America/St_Johns",
    "CST": "America/Chicago",
    "CTT": "Asia/Shanghai",
    "EAT": "Africa/Addis_Ababa",
    "ECT": "Europe/Paris",
    "IST": "Asia/Kolkata",
    "IET": "America/Indiana/Indianapolis",
    "JST": "Asia/Tokyo",
    "MIT": "Pacific/Apia",
    "NET": "Asia/Yerevan",
    "NST": "Pacific/Auckland",
    "PLT": "Asia/Karachi",
    "PNT": "America/Phoenix",
    "PRT": "America/Puerto_Rico",
    "PST": "America/Los_Angeles",
    "SST": "Pacific/Guadalcanal",
    "VST": "Asia/Ho_Chi_Minh",
}


def time_zone(name: str) -> str:
    """Return a zone as Arrow and Python name it, of all that Java and Spark call it.

    Examples
    --------
    >>> time_zone("GMT+8"), time_zone("-0330"), time_zone("PST"), time_zone("Asia/Tokyo")
    ('+08:00', '-03:30', 'America/Los_Angeles', 'Asia/Tokyo')
    """
    offset = _OFFSET.fullmatch(name)
    if offset is not None:
        return f"{offset['sign']}{int(offset['hours']):02}:{int(offset['minutes'] or 0):02}"
    return _SHORT_ZONES.get(name, name)


def zone_info(zone: str) -> tzinfo:
    """Return the zone of a name that `time_zone` gave."""
    try:
        if _OFFSET.fullmatch(zone):
            return datetime.strptime(zone, "%z").tzinfo or timezone.utc
        return ZoneInfo(zone)
    # A folder of zones such as "Europe" is an error of the operating system.
    except (ValueError, OSError, ZoneInfoNotFoundError):
        raise no_time_zone(zone) from None
