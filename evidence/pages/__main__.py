"""`python -m evidence.pages`: write every table and page that follows from results/ and the code; nothing is run."""

from __future__ import annotations

from bomd.reports.tables import write_results
from evidence import DOCS, RESULTS
from evidence.pages import (
    against_cleanlab,
    audit_table,
    bytes_moved,
    datasets,
    how_it_works,
    methods,
    pretraining,
    readme,
    reference,
    reproduced,
    results,
    rooms,
    scale,
    speed,
    successor,
)
from evidence.records import EVERY_RUN, file_of, records_of
from evidence.studies import tuning


def main() -> None:
    for name in EVERY_RUN:
        write_results(records_of(name), file_of(name))
    if tuning.TABLE.exists():
        tuning.main(["--choose"])
    pretraining.main()  # the README has a line of its table
    readme.write_numbers()
    how_it_works.main(redraw=True)
    made = (against_cleanlab, audit_table, bytes_moved, datasets, methods, reference, reproduced, results, rooms, scale)
    for page in (*made, speed, successor):
        page.main()
    print(f"Written: the tables in {RESULTS} and the pages in {DOCS}. What changed: git status")


if __name__ == "__main__":
    main()
