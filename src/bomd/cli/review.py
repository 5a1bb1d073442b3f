"""Commands for people who decide about labels: review, decisions."""

from __future__ import annotations

import sys
import webbrowser
from pathlib import Path
from typing import Annotated

import typer

from bomd.cli import options
from bomd.cli.options import RunDirectory, flag, option, say, typed


def review(
    run: RunDirectory,
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port on this machine; 0 takes a free one.")] = 0,
    reviewer: Annotated[str | None, option("Your name; else the page asks for it.", "NAME")] = None,
    open_page: Annotated[bool, flag("--open", "Open the page in a browser.")] = False,
    originals: Annotated[
        bool | None,
        typer.Option(
            "--originals/--packed",
            help="Show the image files, or the packed images that the network saw; by default the files if there are.",
        ),
    ] = None,
) -> None:
    """Look through flagged images in a browser and decide on their labels.

    The page is for this machine only and needs the token in the printed address. Decisions are saved in the run
    directory as they are made; given labels are never changed. Stop with Ctrl-C.
    """
    from bomd.reports import gate
    from bomd.review import server
    from bomd.review.decisions import FILE, Journal, only_server
    from bomd.review.evidence import only_run, open_evidence

    given, run = run, only_run(run)
    evidence = open_evidence(run, originals=originals)
    with server.listen(port) as listener:
        place = f"http://127.0.0.1:{listener.getsockname()[1]}/"
        with only_server(run, place):
            journal = Journal(run / FILE, evidence.classes)
            try:
                token = server.make_token()
                pages = server.Pages(evidence, journal, reviewer)
                with gate.opened(run, f"{place}?token={token}") as page:
                    print(f"{len(evidence.rows)} of {len(evidence)} images to review. Open this address:")
                    print(f"{place}?token={token}")
                    print("Stop with Ctrl-C. Every decision is saved as it is made.")
                    sys.stdout.flush()
                    if open_page:  # the page, not the address: everybody can list the arguments of a process
                        webbrowser.open(page.resolve().as_uri())
                    server.serve(pages, token, listener)
            except KeyboardInterrupt:  # as it is meant to end
                print(f"Stopped. Your table as it was decided: {typed('decisions', given)}")
                if (run / "model").is_dir():  # where features judge, none was trained and none can be again
                    print(f"A classifier that learns from it: {typed('retrain', given)}")
            finally:
                journal.close()


def decisions(
    run: RunDirectory,
    output: Annotated[Path | None, options.output("Where the reviewed labels go.", "FILE")] = None,
    rates: Annotated[Path | None, option("Also write how often labels are wrong, for `audit --rates`.", "FILE")] = None,
    log: Annotated[
        Path | None, option("Also write a change log, and beside it the same as a page to sign.", "FILE")
    ] = None,
    copies: Annotated[
        list[Path] | None, option("First take in what was decided on a copy of RUN (repeatable).", "COPY", "--with")
    ] = None,
) -> None:
    """Write your own table with the labels that people decided on, and say how far reviewers agree.

    The table has the columns, order, separator and spelling of the one that was audited. FILE-details.csv, beside it,
    says who decided what, when and why. Without `--output` it is reviewed.csv in the run directory. `bomd audit` and
    `bomd run RECIPE --labels FILE` know from the details which labels people decided on, and leave those as they are.
    Works while a review is going on.
    """
    from bomd.audits import kept
    from bomd.review import outputs
    from bomd.review.agreement import agreement
    from bomd.review.evidence import only_run
    from bomd.review.export import as_listed, read_reviewed, reviewed_files, take_in, unresolved

    given, run = run, only_run(run)
    for copy in copies or ():
        take_in(run, only_run(copy))
    own = kept.find(run)
    reviewed = as_listed(read_reviewed(run), own)
    files = reviewed_files(run, reviewed, own, output)
    written = [f"Reviewed labels: {files[0].path}", f"Who decided what: {files[1].path}"]
    if rates is not None:
        from bomd.review.learning import rates_file

        files.append(rates_file(run, reviewed, rates))
        written.append(f"Rates by these decisions: {rates}")
    if log is not None:
        from bomd.review.change_log import log_files

        entries, both = log_files(run, reviewed, own, log)
        files += both
        lines = f"{len(entries)} line{'s' * (len(entries) != 1)}"
        written.append(f"Change log: {log}, {lines}; to sign: {both[-1].path}")
    outputs.write(files, None if own is None else own.source)
    found = agreement(reviewed.standing, reviewed.labels.classes)
    judged = int((reviewed.reviewers > 0).sum())
    split = unresolved(reviewed, own)
    labels = "1 label is" if split == 1 else f"{split} labels are"
    print(f"{judged} of {len(reviewed.labels)} images {'is' if judged == 1 else 'are'} reviewed; {labels} unresolved.")
    for person in found["reviewers"]:
        wrote = sum(bool(said.reason) for said in reviewed.standing[person["name"]].values() if said.labels)
        say(f"{person['name']}: {_images(person['images'])}{f', {wrote} with a reason' * bool(wrote)}")
    if found["shared"]:
        kappa = found["overall"]["kappa"]
        value = "not defined, since all judgements are the same" if kappa is None else f"{kappa:.2f}"
        print(f"{found['measure']}'s kappa over {_images(found['shared'])} that several people judged: {value}")
    say("\n".join(written))
    if not judged:
        say(f"Nobody has decided anything yet: {typed('review', given, '--open')}")
    elif (run / "model").is_dir():
        say(f"Next, a classifier that learns from it: {typed('retrain', given)}")


def retrain(
    run: RunDirectory,
    output: Annotated[Path | None, options.output("Where the model goes; by default RUN/retrained.", "DIR")] = None,
    held_out: Annotated[
        float | None, option("Share of the patients that choose thresholds; by default that of the run, or a fifth.")
    ] = None,
) -> None:
    """Train a classifier from an audit or run and what people decided about it, with thresholds.

    Uses the settings of the run, so that it takes about as long. Decided labels are learnt as they are. Some patients
    are held out: by their labels, decided ones included, a threshold is chosen for each class. Interrupted, the same
    command continues.

    For example: bomd retrain labels-audit, then bomd predict labels-audit/retrained/model new_images
    """
    from bomd.experiments.recorded import Record
    from bomd.files import read_json
    from bomd.measure.result import VALIDATION
    from bomd.models import card
    from bomd.review.retrain import retrain as train_again

    done = train_again(run, output, held_out)
    held_out_images = Record.of(done.run).result.images[VALIDATION]
    description = read_json(done.model / "model.json")
    chosen = description.get("thresholds") or {}
    if description.get("format") == card.ONE_CLASS:
        say(card.LIKELIEST)
    else:
        there = [name for name, value in chosen.items() if value is not None]
        say(f"{_images(held_out_images)} of held-out patients gave {len(there)} of {len(chosen)} thresholds:")
        for name, value in chosen.items():
            say(f"  {name}: {card.NO_THRESHOLD if value is None else f'{value:.2f}'}")
    say(f"Model: {done.model}")
    say(f"Report: {done.page}")
    say(f"Next, new images: {typed('predict', done.model, 'IMAGES')}")


def _images(count: int) -> str:
    return "1 image" if count == 1 else f"{count} images"
