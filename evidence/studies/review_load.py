"""Many reviewers at once on a large run: how long a page takes, and whether every acknowledged decision is kept.

    python -m evidence.studies.review_load  # 20 people, 100,000 images, a minute; writes results/review_load.csv

A person takes a page of the queue, opens its first image with its picture, decides, and now and then takes a decision
back; then rests for a moment, far shorter than a human would. The images are a file of zeros that takes no room.
"""

from __future__ import annotations

import argparse
import asyncio
import csv
import hashlib
import io
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import zlib
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np

from bomd.clean.opinion import form_opinion
from bomd.data.wanted import FORMAT
from bomd.experiments.records import LabelRecord
from bomd.files import write_arrays, write_json, write_text
from bomd.review.decisions import FILE, read_events
from bomd.review.guard import COOKIE, room_and_ticket
from bomd.tables import Flags, LabelTable
from evidence import RESULTS

CLASSES = tuple(f"Finding {number}" for number in range(14))
NEIGHBOURS = 10
SIZE = 128

Line = dict[str, object]


def build(directory: Path, count: int, seed: int = 0) -> None:
    """Write a run of `count` images, all of them flagged."""
    random = np.random.default_rng(seed)
    ids = np.char.add("image-", np.arange(count).astype(np.str_))
    patients = np.char.add("patient-", (np.arange(count) // 4).astype(np.str_))
    values = (random.random((count, len(CLASSES))) < 0.15).astype(np.float32)
    given = LabelTable(ids, CLASSES, values, patients=patients)
    scores = random.random(values.shape).astype(np.float32)
    flags = Flags(ids, np.ones(count, dtype=np.bool_), -scores[:, 0], scores - 1)
    LabelRecord(
        given=given,
        targets=given,
        opinion=form_opinion(scores, given)[0],
        flags=flags,
        neighbours=random.integers(0, count, (count, NEIGHBOURS)),
        scores=scores,
        classifier=scores,
    ).save(directory / "labels.npz")
    store = directory / "images"
    zeros = np.zeros((SIZE, SIZE), dtype=np.uint8)
    index = {
        "ids": ids,
        "original_sizes": np.full((count, 2), SIZE, dtype=np.int32),
        "crc32": np.full(count, zlib.crc32(zeros.tobytes()), dtype=np.uint32),
    }
    write_arrays(store / "index.npz", index)
    with (store / "images.u8").open("wb") as stream:
        stream.truncate(count * SIZE**2)
    digest = hashlib.sha256((store / "index.npz").read_bytes()).hexdigest()
    facts = {"format": FORMAT, "size": SIZE, "count": count, "request": "", "index_sha256": digest, "broken": []}
    write_json(store / "store.json", facts)
    write_json(directory / "images.json", {"store": "images", "size": SIZE})


class Person:
    """One reviewer on a connection of their own, which stays open as a browser's does."""

    def __init__(self, name: str, port: int, token: str, seed: int) -> None:
        self.name, self.port = name, port
        self.room, self.ticket = room_and_ticket(token, port)
        self.random = np.random.default_rng(seed)
        self.seconds: dict[str, list[float]] = defaultdict(list)
        self.acknowledged: list[tuple[int, str]] = []

    async def work(self, until: float, pause: float) -> None:
        self.reader, self.writer = await asyncio.open_connection("127.0.0.1", self.port)
        await asyncio.sleep(self.random.random() * pause)
        while time.monotonic() < until:
            found = await self.ask("queue", "GET", f"/api/queue?reviewer={self.name}&count=50")
            item = found["items"][int(self.random.integers(10))]
            await self.ask("image", "GET", f"/api/image/{item['number']}?reviewer={self.name}")
            await self.ask("picture", "GET", f"/picture/{item['number']}")
            body = {"reviewer": self.name, "number": item["number"], "id": item["id"], "action": "edit"}
            labels = self.random.integers(0, 2, len(CLASSES)).tolist()
            saved = await self.ask("decide", "POST", "/api/decide", {**body, "labels": labels})
            self.acknowledged.append((saved["event"], item["id"]))
            if self.random.random() < 0.1:
                undone = await self.ask("undo", "POST", "/api/undo", {"reviewer": self.name})
                self.acknowledged.append((undone["event"], item["id"]))
            await asyncio.sleep(pause * (0.5 + self.random.random()))
        self.writer.close()

    async def ask(self, kind: str, method: str, path: str, body: dict[str, Any] | None = None) -> Any:
        """Send a request and take the time until the whole answer is there."""
        content = b"" if body is None else json.dumps(body).encode()
        lines = [
            f"{method} {self.room}{path.removeprefix('/')} HTTP/1.1",
            f"Host: 127.0.0.1:{self.port}",
            f"Origin: http://127.0.0.1:{self.port}",
            f"Cookie: {COOKIE}={self.ticket}",
            "Content-Type: application/json",
            f"Content-Length: {len(content)}",
        ]
        started = time.perf_counter()
        self.writer.write("\r\n".join([*lines, "", ""]).encode() + content)
        head = (await self.reader.readuntil(b"\r\n\r\n")).decode().lower()
        length = int(head.split("content-length: ")[1].split("\r\n")[0])
        answer = await self.reader.readexactly(length)
        self.seconds[kind].append(time.perf_counter() - started)
        if not head.startswith("http/1.1 200"):
            raise RuntimeError(f"{path}: {head.splitlines()[0]} {answer[:200]!r}")
        return {} if kind == "picture" else json.loads(answer)


def measure(run: Path, reviewers: int, seconds: float, pause: float) -> list[Line]:
    """Serve a run, let people work on it, kill the server, and compare what it said with what is on disk."""
    command = "import sys; from pathlib import Path; from bomd.cli.review import review; review(Path(sys.argv[1]))"
    server = subprocess.Popen([sys.executable, "-c", command, str(run)], stdout=subprocess.PIPE, text=True)
    try:
        assert server.stdout is not None
        address = next(line.strip() for line in server.stdout if "?token=" in line)
        place, _, token = address.partition("/?token=")
        port = int(place.rsplit(":", 1)[1])
        people = [Person(f"r{number}", port, token, number) for number in range(reviewers)]

        async def all_at_once() -> None:
            until = time.monotonic() + seconds
            await asyncio.gather(*(person.work(until, pause) for person in people))

        asyncio.run(all_at_once())
    finally:
        os.kill(server.pid, signal.SIGKILL)
        server.wait()
    kept = {(event.reviewer, event.number, event.image) for event in read_events(run / FILE, CLASSES)}
    said = {(person.name, *pair) for person in people for pair in person.acknowledged}
    facts = {
        "images": len(LabelRecord.load(run / "labels.npz").given),
        "reviewers": reviewers,
        "seconds": seconds,
        "pause_s": pause,
        "processors": os.cpu_count(),
    }
    lines: list[Line] = []
    for kind in ("queue", "image", "picture", "decide", "undo"):
        times = np.asarray([taken for person in people for taken in person.seconds[kind]]) * 1000
        p50, p95 = np.percentile(times, [50, 95]) if len(times) else (np.nan, np.nan)
        spread = {"p50_ms": f"{p50:.1f}", "p95_ms": f"{p95:.1f}", "max_ms": f"{times.max(initial=0):.1f}"}
        lines.append({**facts, "request": kind, "answers": len(times), **spread})
    for line in lines:
        line |= {"acknowledged": len(said), "found": len(said & kept)}
    return lines


def to_csv(lines: list[Line]) -> str:
    stream = io.StringIO()
    writer = csv.DictWriter(stream, list(lines[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(lines)
    return stream.getvalue()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=int, default=100_000)
    parser.add_argument("--reviewers", type=int, default=20)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--pause", type=float, default=0.5, help="mean rest after a decision, in seconds")
    parser.add_argument("--out", type=Path, default=RESULTS / "review_load.csv")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="bomd-review-") as folder:
        build(Path(folder), chosen.images)
        text = to_csv(measure(Path(folder), chosen.reviewers, chosen.seconds, chosen.pause))
    write_text(chosen.out, text)
    print(text, end="")


if __name__ == "__main__":
    main()
