"""Shops as others read them: the same fields as ours, and files without what no instance has."""

from __future__ import annotations

import pytest
from references.shops import Activity, Read, drawn, fields_of, narrowed, our_fields

from jigsaw_opt.documents.job_shops import jsplib_text
from jigsaw_opt.documents.readers.shops import SHOP_FORMATS, read_jsplib

SM = """\
PRECEDENCE RELATIONS:
jobnr.    #modes  #successors   successors
   1        1          2           2   3
   2        1          1           4
   3        1          1           4
   4        1          1           5
   5        1          0
************************************************************************
REQUESTS/DURATIONS:
jobnr. mode duration  R 1  R 2
------------------------------------------------------------------------
  1      1     0       0    0
  2      1     3       2   10
  3      1     4       2    0
  4      1     6       0    3
  5      1     0       0    0
************************************************************************
RESOURCEAVAILABILITIES:
  R 1  R 2
   12   13
"""
RCP = "5 2\n12 13\n0 0 0 2 2 3\n3 2 10 1 4 4 2\n0 1 4\n6 0 3 1 5\n0 0 0 0\n"
FJS = "2 2 1.5\n2 2 1 3 2 4 1 2 5\n1 1 2 6\n"
PROJECT = Read(
    "another",
    [("R 1", 1), ("R 2", 1)],
    {
        "1": Activity(0, {}, ["2", "3"]),
        "2": Activity(3, {0: 1, 1: 1}, ["4"]),
        "3": Activity(4, {0: 1}, ["4"]),
        "4": Activity(6, {1: 1}, ["5"]),
        "5": Activity(0, {}, []),
    },
)
SHOP = Read(
    "another",
    [("m0", 1), ("m1", 1)],
    {"0.0": Activity(3, {0: 1}, ["0.1"]), "0.1": Activity(5, {1: 1}, []), "1.0": Activity(6, {1: 1}, [])},
)


@pytest.mark.parametrize(
    ("form", "text", "read"),
    [("psplib", SM, PROJECT), ("psplib", RCP, PROJECT), ("fjsplib", FJS, SHOP)],
    ids=["sm", "rcp", "fjs"],
)
def test_what_is_narrowed_is_an_instance_with_the_fields_that_others_read(form: str, text: str, read: Read) -> None:
    ours = our_fields(SHOP_FORMATS[form](narrowed(text, form), "file", "shop"))
    assert ours == fields_of(read)


def test_a_field_that_another_reads_otherwise_differs() -> None:
    ours = our_fields(read_jsplib(narrowed("1 2\n0 3 1 5\n", "jsplib"), "file", "shop"))
    theirs = Read("another", [("m0", 1), ("m1", 1)], {"0.0": Activity(3, {0: 1}, []), "0.1": Activity(5, {1: 1}, [])})
    assert fields_of(theirs)["0.1"] == ours["0.1"] and fields_of(theirs)["0.0"] != ours["0.0"]


def test_drawn_shops_are_job_shops() -> None:
    assert jsplib_text(drawn(0)).splitlines()[1] == "4 3" and drawn(0) != drawn(1)
