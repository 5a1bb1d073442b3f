"""The review page's server: a queue, evidence, pictures and decisions, for one run on this machine.

All state lives in one thread, the event loop's. Two things leave it: decisions, which the journal's thread commits,
and work that takes long (files, heat maps, exports), which a thread of a pool does.
"""

from __future__ import annotations

import asyncio
import math
import secrets
import signal
import socket
import sys
import threading
import traceback
from collections import defaultdict
from pathlib import Path
from typing import Any

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import HTMLResponse, PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp

from bomd.audits import kept
from bomd.data.datasets.corrected import details_beside
from bomd.errors import InputError
from bomd.reports.gate import rendered
from bomd.review.agreement import agreement
from bomd.review.connections import HastyProtocol
from bomd.review.decisions import JUDGEMENTS, Event, Journal
from bomd.review.evidence import Evidence, png
from bomd.review.export import as_details, as_listed, as_table, merge
from bomd.review.guard import Guard, as_json, as_png, one_of, read_body, read_name, read_reason, whole
from bomd.review.learning import FIRST, Teacher
from bomd.review.pictures import HeatMaps, Pictures
from bomd.review.queue import BASES, KINDS, OPEN, ORDERS, STATES, Desk, Filter, Queue, plain_labels, replay
from bomd.tables import NO_FINDING

PAGES = Path(__file__).parent / "pages"
TYPES = {".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml"}  # of the only files that are served
LONGEST_TEXT, LONGEST_PAGE = 100, 200
LEARNING = 0.5  # seconds that a page waits for an update of its order before it is sent in the old one
MOST_REVIEWERS = 200  # each costs memory; a hostile page must not make up more and more of them


class Pages:
    """The answers to all requests about one run."""

    def __init__(self, evidence: Evidence, journal: Journal, reviewer: str | None = None) -> None:
        self.evidence, self.journal = evidence, journal
        self.queue = Queue(evidence)
        self.desks = replay(self.queue, journal.events())
        self.pictures = Pictures(evidence)
        self.heat = HeatMaps(evidence, self.pictures)
        self.teacher = Teacher(evidence)
        self._nobody = Desk(self.queue)
        self._lessons: dict[Desk, asyncio.Task[None]] = {}
        self._one_lesson = asyncio.Lock()
        self._turns: dict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        facts = {"run": "/".join(evidence.directory.resolve().parts[-3:]), "reviewer": reviewer or ""}
        self._html = {name: rendered(PAGES / f"{name}.html", **facts) for name in ("review", "agreement")}
        self._static = {file.name: file.read_bytes() for file in PAGES.iterdir() if file.suffix in TYPES}

    def routes(self) -> list[Route]:
        return [
            Route("/", self.page),
            Route("/agreement", self.page),
            Route("/static/{name}", self.static),
            Route("/api/run", self.run),
            Route("/api/queue", self.part_of_queue),
            Route("/api/image/{number}", self.image),
            Route("/api/find", self.find),
            Route("/api/learnt", self.learnt),
            Route("/api/agreement", self.kappa),
            Route("/api/decide", self.decide, methods=["POST"]),
            Route("/api/undo", self.undo, methods=["POST"]),
            Route("/picture/{number}", self.picture),
            Route("/heat/{number}/{column}", self.heat_map),
            Route("/export.csv", self.export),
            Route("/details.csv", self.export),
        ]

    async def page(self, request: Request) -> Response:
        return HTMLResponse(self._html["agreement" if request.url.path == "/agreement" else "review"])

    async def static(self, request: Request) -> Response:
        name = request.path_params["name"]
        if name not in self._static:
            raise HTTPException(404, "No such page.")
        return Response(self._static[name], media_type=TYPES[Path(name).suffix])

    async def run(self, request: Request) -> Response:
        record, classes = self.evidence.record, self.evidence.classes
        return as_json(
            {
                "classes": classes,
                "images": len(self.evidence),
                "queued": len(self.queue.rows),
                "reviewers": sorted(self.desks),
                "one_label": record.given.exclusive,
                "nothing": classes.index(NO_FINDING) if NO_FINDING in classes else None,
                "packed": self.evidence.store.size,
                "reasons": record.opinion.reasons,
                "has": {
                    "patients": self.evidence.patients is not None,
                    "files": record.given.paths is not None,
                    "classifier": record.classifier is not None,
                    "votes": self.evidence.votes is not None,
                    "heat": self.heat.possible,
                },
                "model_ready": self.heat.ready,
            }
        )

    async def part_of_queue(self, request: Request) -> Response:
        """A page of the queue in the reviewer's order, and the image to look at next."""
        query = request.query_params
        desk = self._desk(query.get("reviewer", ""))
        await self._learn(desk)
        wanted = self._filter(request)
        found = desk.find(wanted)
        start = whole(query.get("start", "0"), "start", 10**9)
        count = whole(query.get("count", "50"), "count", LONGEST_PAGE)
        waiting = found[desk.state[found] == OPEN]
        items = [desk.item(row, wanted.basis) for row in found[start : start + count]]
        upcoming = int(waiting[0]) if len(waiting) else None
        part = {"total": len(found), "start": start, "items": items, "next": upcoming}
        return as_json({**part, "progress": desk.progress()})

    async def image(self, request: Request) -> Response:
        """The evidence on one image, and what the reviewer decided about it."""
        row = self._row(request)
        desk = self._desk(request.query_params.get("reviewer", ""))
        decision = desk.decision(row)
        own = None if decision is None else {name: getattr(decision, name) for name in ("action", "labels", "reason")}
        pictures, basis = self.pictures, one_of(request, "basis", BASES)
        facts = self.evidence.facts(row)
        if desk.learnt is not None and basis == "decisions":
            for label, chance in zip(facts["labels"], desk.learnt.wrong(row).tolist(), strict=True):
                label["before"], label["wrong"] = label["wrong"], None if math.isnan(chance) else round(chance, 4)
        shown = await run_in_threadpool(pictures.shown, row) if pictures.files else pictures.shown(row)
        picture = {"original": shown.original, "why": shown.why}
        return as_json({**facts, **desk.item(row, basis), "decision": own, "picture": picture})

    async def find(self, request: Request) -> Response:
        """The number of an image by its id, for links from elsewhere."""
        wanted = request.query_params.get("id", "")
        if wanted not in self.evidence.numbers:
            raise HTTPException(404, "This run has no image of that name.")
        return as_json({"number": self.evidence.numbers[wanted]})

    async def learnt(self, request: Request) -> Response:
        """How many proposals the reviewer took so far, and what that says about each class."""
        desk = self._desk(request.query_params.get("reviewer", ""))
        await self._learn(desk)
        return as_json({**desk.lessons(), "first": FIRST if self.teacher.possible else None})

    async def picture(self, request: Request) -> Response:
        row = self._row(request)
        if "small" in request.query_params or not self.pictures.files:  # lists show packed images in any case
            return as_png(png(self.evidence.packed(row)))  # too quick to be worth a thread
        return as_png(await run_in_threadpool(lambda: png(self.pictures.shown(row).pixels)))

    async def heat_map(self, request: Request) -> Response:
        row = self._row(request)
        column = whole(request.path_params["column"], "class", len(self.evidence.classes) - 1, missing=404)
        try:
            return as_png(await run_in_threadpool(self.heat.draw, row, column))
        except (InputError, ImportError) as error:
            raise HTTPException(404, str(error)) from error

    async def decide(self, request: Request) -> Response:
        """Save a decision; the answer is sent when it is on disk."""
        body = await read_body(request)
        reviewer, reason = read_name(body.get("reviewer")), read_reason(body.get("reason"))
        row = body.get("number")
        if type(row) is not int or not 0 <= row < len(self.evidence):
            raise HTTPException(404, "No such image.")
        image = str(self.evidence.record.given.ids[row])
        if body.get("id") != image:
            raise HTTPException(409, "The image has another id: reload the page.")
        action = body.get("action")
        if action == "edit":
            labels: tuple[int | None, ...] | None = self._labels(body.get("labels"))
        elif action in JUDGEMENTS:
            values = self.evidence.proposed if action == "accept" else self.evidence.given
            labels = plain_labels(values[row])
        elif action == "skip":
            labels = None
        else:
            raise HTTPException(400, f"'action' must be one of {', '.join(JUDGEMENTS)}, skip.")
        if reviewer not in self.desks and len({*self.desks, *self._turns}) >= MOST_REVIEWERS:
            raise HTTPException(409, f"There are {MOST_REVIEWERS} reviewers already.")
        async with self._turns[reviewer]:
            return as_json(await self._save(Event(reviewer, image, action, labels, reason=reason)))

    async def undo(self, request: Request) -> Response:
        """Take back the reviewer's last decision; the words that went with it are in the answer, to be used again."""
        reviewer = read_name((await read_body(request)).get("reviewer"))
        if reviewer not in self.desks:
            raise HTTPException(409, "There is nothing to undo.")
        async with self._turns[reviewer]:
            last = self.desks[reviewer].last()
            if last is None:
                raise HTTPException(409, "There is nothing to undo.")
            undone = await self._save(Event(reviewer, last.image, "undo", undoes=last.number))
            return as_json({**undone, "reason": last.reason})

    async def kappa(self, request: Request) -> Response:
        standing = {name: desk.decisions() for name, desk in self.desks.items()}
        return as_json(await run_in_threadpool(agreement, standing, self.evidence.classes))

    async def export(self, request: Request) -> Response:
        """The table with decided labels in it, or its details: the files of `bomd decisions`."""
        given = self.evidence.record.given
        standing = {
            name: {event.image: event for event in desk.decisions().values()} for name, desk in self.desks.items()
        }

        def write() -> tuple[str, str]:
            own = kept.find(self.evidence.directory)
            table = Path(f"reviewed{'.csv' if own is None else own.suffix}")
            reviewed = as_listed(merge(given, standing), own)
            if request.url.path == "/details.csv":
                return as_details(reviewed, None if own is None else own.details), details_beside(table).name
            return as_table(reviewed, own), table.name

        try:
            text, name = await run_in_threadpool(write)
        except InputError as error:
            raise HTTPException(409, str(error)) from error
        disposition = {"content-disposition": f'attachment; filename="{name}"'}
        return Response(text, media_type="text/csv", headers=disposition)

    async def _learn(self, desk: Desk) -> None:
        """See to it that enough new decisions change the order; what takes long goes on after the answer is sent."""
        if self.teacher.possible and desk.due and desk not in self._lessons:
            self._lessons[desk] = asyncio.create_task(self._teach(desk))
        if desk in self._lessons:
            await asyncio.wait([self._lessons[desk]], timeout=LEARNING)

    async def _teach(self, desk: Desk) -> None:
        try:
            async with self._one_lesson:  # one at a time: there are other pages to answer
                desk.learn(await run_in_threadpool(self.teacher.learn, desk.decisions(), desk.events))
        finally:
            del self._lessons[desk]

    async def _save(self, event: Event) -> dict[str, Any]:
        try:
            saved = await asyncio.wrap_future(self.journal.submit(event))
        except InputError as error:
            raise HTTPException(507, str(error)) from error
        desk = self.desks.setdefault(event.reviewer, Desk(self.queue))
        desk.apply(saved)
        row = self.evidence.numbers[event.image]
        return {"event": saved.number, "number": row, "progress": desk.progress()}

    def _desk(self, reviewer: str) -> Desk:
        return self.desks.get(reviewer.strip(), self._nobody)

    def _filter(self, request: Request) -> Filter:
        known = {"kind": KINDS, "state": STATES, "order": ORDERS, "basis": BASES}
        chosen = {name: one_of(request, name, values) for name, values in known.items()}
        column, text = (request.query_params.get(name, "") for name in ("class", "text"))
        if len(text) > LONGEST_TEXT:
            raise HTTPException(400, f"'text' may have {LONGEST_TEXT} characters.")
        place = whole(column, "class", len(self.evidence.classes) - 1) if column else None
        return Filter(place, text=text, **chosen)

    def _row(self, request: Request) -> int:
        return whole(request.path_params["number"], "image", len(self.evidence) - 1, missing=404)

    def _labels(self, given: Any) -> tuple[int | None, ...]:
        C = len(self.evidence.classes)
        fits = isinstance(given, list) and len(given) == C
        if not fits or not all(value is None or (type(value) is int and value in (0, 1)) for value in given):
            raise HTTPException(400, f"'labels' must be {C} values, each 0, 1 or null.")
        if self.evidence.record.given.exclusive and given.count(1) != 1:
            raise HTTPException(400, "An image has one label here: exactly one of 'labels' must be 1.")
        return tuple(given)


def make_app(pages: Pages, token: str, port: int) -> ASGIApp:
    """The pages behind their guard."""
    handlers = {HTTPException: _one_line, ClientDisconnect: _gone, Exception: _broken}
    return Guard(Starlette(routes=pages.routes(), exception_handlers=handlers), token, port)


def listen(port: int) -> socket.socket:
    """A socket on this machine's own address, which no other machine can reach; port 0 takes a free one."""
    # Named as TCP, or asyncio does not switch off the delay of small packets, which costs 40 ms an answer.
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind(("127.0.0.1", port))
        listener.listen(256)
    except (OSError, OverflowError) as error:
        listener.close()
        raise InputError(f"Cannot listen on port {port}: {error}. Try --port 0.") from error
    return listener


def serve(pages: Pages, token: str, listener: socket.socket) -> None:
    """Answer requests until interrupted."""
    import uvicorn

    config = uvicorn.Config(
        make_app(pages, token, listener.getsockname()[1]),
        log_level="critical",  # connections that break are nothing to report; faults of the pages are, by `_broken`
        access_log=False,  # addresses may hold the token
        server_header=False,
        h11_max_incomplete_event_size=16 * 1024,
        limit_concurrency=256,
        timeout_graceful_shutdown=5,
        lifespan="off",
        ws="none",
        http=HastyProtocol,
    )
    # Uvicorn raises again what stopped it: a polite end must still let the run's lock, address and gate go.
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    uvicorn.Server(config).run(sockets=[listener])


def make_token() -> str:
    return secrets.token_urlsafe(24)


async def _one_line(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    line = " ".join(str(error.detail).split())
    return PlainTextResponse(f"{line}\n", error.status_code, headers=error.headers)


async def _gone(request: Request, error: Exception) -> Response:
    """Whoever asked has closed the tab meanwhile: nobody reads this, and nothing is wrong."""
    return PlainTextResponse("Nobody is there any more.\n", 400)


async def _broken(request: Request, error: Exception) -> Response:
    traceback.print_exception(error)
    return PlainTextResponse("This is a fault of the server; its terminal says more.\n", 500)
