"""The data that Slurm's priorities are made of: ``slurm.conf``, shares of accounts and users, priorities of QOS.

`read_slurm_conf` reads ``slurm.conf``, or what ``scontrol show config`` and ``scontrol show partition`` print.
`read_shares` reads what ``sacctmgr -P show assoc format=Account,User,ParentName,Share`` prints, and `read_qos` what
``sacctmgr -P show qos format=Name,Priority`` prints. More columns do no harm.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from jigsaw_opt.documents.readers.lines import Lines, within_themselves
from jigsaw_opt.errors import InvalidInputError, Problem

_ROOT = "root"
_MOST = 2**32 - 1
_MOST_OF = 65_533
"""The greatest priority of a partition."""
_OF_PARTITIONS = frozenset({"priorityjobfactor", "prioritytier"})
_NULL = "(null)"
_QOS = "sacctmgr -P show qos format=Name,Priority"
_SHARES = "sacctmgr -P show assoc format=Account,User,ParentName,Share"
_OTHER_NAMES = {"par name": "parentname", "fairshare": "share"}
"""What some versions call a column."""


class SlurmConf(NamedTuple):
    """Parameters by their name in small letters, and those of each partition."""

    parameters: Mapping[str, str]
    partitions: Mapping[str, Mapping[str, str]]
    includes: int
    """How many lines include other files, which are not read."""

    def of_partitions(self, name: str, source: str) -> dict[str, int]:
        """Return a number of each partition, as ``PriorityTier``; 1 where none is stated, Slurm's default."""
        stated = {partition: own.get(name.lower(), "1") for partition, own in self.partitions.items()}
        found = {partition: _whole(text, _MOST_OF) for partition, text in stated.items()}
        told = f"is a whole number from 0 to {_MOST_OF}"
        wrong = [f"{name} of partition {one!r} {told}" for one, number in found.items() if number is None]
        if wrong:
            raise InvalidInputError(Problem(source, one, code="out-of-range") for one in wrong)
        return {partition: number for partition, number in found.items() if number is not None}


class Association(NamedTuple):
    """An account, or a user in an account, and its shares; None where it is served as its parent is."""

    account: str
    user: str
    """Empty for the account itself."""
    parent: str
    """The account that an account is part of."""
    shares: int | None


def read_slurm_conf(data: bytes | str, source: str = "slurm.conf") -> SlurmConf:
    """Read the parameters of Slurm; later lines win, and ``PartitionName=DEFAULT`` is of the partitions behind it.

    `data`: the content of the file; text, or bytes in UTF-8.
    """
    lines = Lines(data, source)
    parameters: dict[str, str] = {}
    partitions: dict[str, dict[str, str]] = {}
    default: dict[str, str] = {}
    includes, before = 0, ""
    last: dict[str, str] | None = None
    for _, raw in lines:
        indented = not before and raw[0].isspace()
        line = before + raw.partition("#")[0].strip()
        if line.endswith("\\"):
            before = line[:-1] + " "
            continue
        before = ""
        if line.lower().startswith("include "):
            includes += 1
        key, equals, value = (word.strip() for word in line.partition("="))
        if not equals:
            continue
        if key.lower() == "partitionname":
            name, *settings = value.split() or [""]
            stated = _pairs(settings)
            last = None
            if name == "DEFAULT":
                default |= stated
                continue
            for one in name.split(","):
                last = partitions[one] = {**default, **partitions.get(one, {}), **stated}
        elif indented and last is not None and not _is_of_cluster(key.lower()):
            last |= _pairs(line.split())  # as scontrol prints partitions
        else:
            parameters[key.lower()] = "" if value == _NULL else value
    if not partitions and not any(name.startswith("priority") for name in parameters):
        told = "states no Priority... parameter and no PartitionName"
        lines.add(None, told, "it is slurm.conf of a cluster", code="empty")
    lines.raise_if_any()
    return SlurmConf(parameters, partitions, includes)


def _is_of_cluster(key: str) -> bool:
    """Return whether a parameter is certainly none of a partition."""
    return key.startswith(("priority", "fairshare")) and key not in _OF_PARTITIONS


def _pairs(words: Sequence[str]) -> dict[str, str]:
    """Return settings as in ``MaxTime=1-0`` by their names in small letters."""
    return {name.lower(): value for name, _, value in (word.partition("=") for word in words)}


def read_shares(data: bytes | str, source: str = "assoc.txt") -> tuple[Association, ...]:
    """Read accounts and users with their shares.

    `data`: the content of the file; text, or bytes in UTF-8.
    """
    lines, found = Lines(data, source), dict[tuple[str, str], Association]()
    clusters: set[str] = set()
    for number, row in _rows(lines, ("account", "user", "parentname", "share"), _SHARES):
        account, user, text = row["account"].strip(), row["user"].strip(), row["share"].strip()
        shares = None if text.lower() == "parent" else _number(lines, number, "Share", text)
        clusters.add(row.get("cluster", ""))
        if not account:
            lines.add(number, "Account is empty", code="empty")
        if (account, user) in found and not row.get("partition"):
            lines.add(number, f"states {account!r} {user!r} a second time", code="duplicate-name")
        found[account, user] = Association(account, user, row["parentname"].strip() or _ROOT, shares)
    if len(clusters) > 1:
        lines.add(None, f"has {len(clusters)} clusters", f"print one: {_SHARES} cluster=NAME", code="ambiguous")
    accounts = {one.account: one.parent for one in found.values() if not one.user and one.account != _ROOT}
    for account in within_themselves(accounts):
        lines.add(None, f"account {account!r} is part of itself", code="cycle")
    lines.raise_if_any()
    return tuple(found.values())


def read_qos(data: bytes | str, source: str = "qos.txt") -> Mapping[str, int]:
    """Read the priority of each QOS.

    `data`: the content of the file; text, or bytes in UTF-8.
    """
    lines, found = Lines(data, source), dict[str, int]()
    for number, row in _rows(lines, ("name", "priority"), _QOS):
        if row["name"] in found:
            lines.add(number, f"states QOS {row['name']!r} a second time", code="duplicate-name")
        found[row["name"]] = _number(lines, number, "Priority", row["priority"])
    lines.raise_if_any()
    return found


def _rows(lines: Lines, columns: Sequence[str], command: str) -> list[tuple[int, dict[str, str]]]:
    """Return the lines behind the header, each by column; a header without one of `columns` is a problem."""
    found: list[tuple[int, dict[str, str]]] = []
    header: list[str] = []
    for number, line in lines:
        cells = [cell.strip() for cell in line.split("|")]
        if not header:
            header = [_OTHER_NAMES.get(cell.lower(), cell.lower()) for cell in cells]
            if missing := [name for name in columns if name not in header]:
                lines.add(number, f"no column {', '.join(missing)}", f"print it with {command}", code="missing-field")
                return []
        elif len(cells) != len(header):
            lines.add(number, f"{len(cells)} cells, and the header has {len(header)}", code="wrong-count")
        else:
            found.append((number, dict(zip(header, cells, strict=True))))
    if not found and not lines.problems:
        lines.add(None, "has no line behind the header", f"print it with {command}", code="empty")
    return found


def _number(lines: Lines, number: int, column: str, text: str) -> int:
    """Return a whole number of a cell."""
    if (found := _whole(text, _MOST)) is not None:
        return found
    lines.add(number, f"{column} is a whole number below 2^32, not {text[:40]!r}", code="out-of-range")
    return 0


def _whole(text: str, most: int) -> int | None:
    """Return the whole number that a text is; None where it is none, or more than the most."""
    good = text.isascii() and text.isdecimal() and len(text) <= 10 and int(text) <= most
    return int(text) if good else None
