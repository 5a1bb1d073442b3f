"""What the published label files hold, counted once, to compare a download and the paper with."""

from __future__ import annotations

from typing import Any

from bomd.data.datasets import nih_google, openi, padchest
from bomd.data.datasets.classes import CHEXPERT_NATIVE, NIH_NATIVE

_CLASSES = {
    "nih": NIH_NATIVE,
    "chexpert": CHEXPERT_NATIVE,
    "nih-google": nih_google.NATIVE,
    "openi": openi.NATIVE,
    "padchest": padchest.NATIVE,
}
# Images, patients, then positives of each class; an indented line goes on with the one before.
_PUBLISHED = """
nih train 86524 28008 8280 1707 8659 13782 4034 4708 876 2637 2852 1378 1423 1251 2242 141 50500
nih test 25596 2797 3279 1069 4658 6112 1748 1623 555 2665 1815 925 1093 435 1143 86 9861
chexpert train 172089 58116 15227 8248 21091 84844 6351 44879 11717 4186 26791 15829 69205 2250 6663 96522
chexpert validation 18935 6415 1746 939 2293 9366 689 4796 1266 489 2928 1864 7694 255 773 10648
chexpert expert 202 200 26 105 66 117 1 42 32 8 75 7 64 1 0 99
nih-google test 1962 860 72 195 1135 295
nih-google validation 2414 835 114 43 1031 310
openi test 7470 3851 616 693 286 116 30 206 77 54 87 199 36 82 90 165 509 99 3 823 4782
padchest test 22213 22213 1095 2036 589 1730 132 455 681 48 16 203 87 1098 378 660 134 555 147 351 2103 1646 1164 123
  1046 815 956 382 505 100 11517
"""

DECLARED: dict[str, dict[str, dict[str, int]]] = {name: {} for name in _CLASSES}
"""Images, patients and positives by dataset and split, as `read(root, split, classes="native")` gives them."""

for _name, _split, *_counts in map(str.split, _PUBLISHED.strip().replace("\n ", " ").splitlines()):
    _columns = ("images", "patients", *_CLASSES[_name])
    DECLARED[_name][_split] = dict(zip(_columns, map(int, _counts), strict=True))

OPTIONS: dict[str, dict[str, Any]] = {"openi": {"views": "all"}}
"""What else these counts were read with: the file of projections is not published with OpenI's reports."""
