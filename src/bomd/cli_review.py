"""Commands for people who decide about labels: review, decisions."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

RunDirectory = Annotated[
    Path, typer.Argument(metavar="RUN", help="A finished run, or a folder with one, such as that of an audit.")
]


def review(
    run: RunDirectory,
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port on this machine; 0 takes a free one.")] = 0,
    reviewer: Annotated[str | None, typer.Option(metavar="NAME", help="Your name; else the page asks for it.")] = None,
    open_page: Annotated[bool, typer.Option("--open", help="Open the page in a browser.")] = False,
    originals: Annotated[
        bool, typer.Option("--originals", help="Show the image files that the run names, not the packed images.")
    ] = False,
) -> None:
    """Look through flagged images in a browser and decide on their labels.

    The page is for this machine only and needs the token in the printed address. Decisions are saved in the run
    directory as they are made; given labels are never changed. Stop with Ctrl-C.
    """
    from bomd.review import server
    from bomd.review.decisions import FILE, Journal, only_server
    from bomd.review.evidence import only_run, open_evidence

    run = only_run(run)
    evidence = open_evidence(run, originals=originals)
    with server.listen(port) as listener:
        place = f"http://127.0.0.1:{listener.getsockname()[1]}/"
        with only_server(run, place):
            journal = Journal(run / FILE, evidence.classes)
            try:
                token = server.make_token()
                pages = server.Pages(evidence, journal, reviewer)
                print(f"{len(evidence.rows)} of {len(evidence)} images to review. Open this address:")
                print(f"{place}?token={token}")
                print("Stop with Ctrl-C. Every decision is saved as it is made.")
                sys.stdout.flush()
                if open_page:
                    import webbrowser

                    webbrowser.open(f"{place}?token={token}")
                server.serve(pages, token, listener)
            finally:
                journal.close()


def decisions(
    run: RunDirectory,
    out: Annotated[Path | None, typer.Option(metavar="FILE", help="Where the reviewed labels go.")] = None,
) -> None:
    """Write reviewed labels as CSV, beside the given ones, and say how far reviewers agree.

    Without `--out` the file is reviewed.csv in the run directory. `bomd run RECIPE --labels FILE` learns from it.
    Works while a review is going on.
    """
    from bomd.review.agreement import agreement
    from bomd.review.decisions import FILE, current, read_events
    from bomd.review.evidence import only_run
    from bomd.review.export import write_csv

    run = only_run(run)
    path = out or run / "reviewed.csv"
    reviewed = write_csv(run, path)
    found = agreement(current(read_events(run / FILE, reviewed.labels.classes)), reviewed.labels.classes)
    console = Console(highlight=False, soft_wrap=True)
    judged = int((reviewed.reviewers > 0).sum())
    print(f"{judged} of {len(reviewed.labels)} images are reviewed; {reviewed.unresolved.sum()} labels are unresolved.")
    for person in found["reviewers"]:
        console.print(f"{person['name']}: {_images(person['images'])}", markup=False)
    if found["shared"]:
        kappa = found["overall"]["kappa"]
        value = "not defined, since all judgements are the same" if kappa is None else f"{kappa:.2f}"
        print(f"{found['measure']}'s kappa over {_images(found['shared'])} that several people judged: {value}")
    console.print(f"Reviewed labels: {path}", markup=False)


def _images(count: int) -> str:
    return "1 image" if count == 1 else f"{count} images"
