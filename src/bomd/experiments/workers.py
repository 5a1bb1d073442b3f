"""Warm processes that do one run after another; one that dies takes no other run with it.

`python -m bomd.experiments.workers` is such a process: one JSON object per line comes in with the settings of a run,
one per line goes out with what became of it. It imports PyTorch and opens a GPU once for all its runs.
"""

from __future__ import annotations

import json
import os
import queue
import signal
import subprocess
import sys
import threading
import traceback
from collections.abc import Generator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TextIO

from bomd import progress, threads
from bomd.config import Config
from bomd.errors import InputError

COMMAND = (sys.executable, "-m", "bomd.experiments.workers")
CLOSING_SECONDS = 10


@dataclass(frozen=True)
class Event:
    """What became of the run at a place of the list."""

    place: int
    state: Literal["running", "finished", "failed"]
    reason: str = ""


def work(
    configs: Sequence[Config], root: Path, jobs: int, command: Sequence[str] = COMMAND
) -> Generator[Event, None, None]:
    """Do these runs in their order, as many at once as asked, and tell what happens; closed, it stops them.

    What the processes print goes to `logs` in the folder of the runs.
    """
    tasks: queue.SimpleQueue[int] = queue.SimpleQueue()
    for place in range(len(configs)):
        tasks.put(place)
    events: queue.SimpleQueue[Event] = queue.SimpleQueue()
    jobs = min(jobs, len(configs))
    gpus = visible_gpus()
    workers = [_Worker(command, root, number, jobs, gpus[number % len(gpus)] if gpus else "") for number in range(jobs)]
    hands = [threading.Thread(target=worker.work_off, args=(tasks, configs, events)) for worker in workers]
    try:
        for hand in hands:
            hand.start()
        left = len(configs)
        while left:
            event = events.get()
            left -= event.state != "running"
            yield event
    finally:
        for worker in workers:
            worker.stop()
        for hand in hands:
            hand.join()


class _Worker:
    """One process, started when first needed and anew when it has died; a thread of its own waits for it."""

    def __init__(self, command: Sequence[str], root: Path, number: int, at_once: int, gpu: str) -> None:
        self.command, self.root, self.at_once, self.gpu = command, root, at_once, gpu
        self.log = root / "logs" / f"worker{number}.log"
        self._process: subprocess.Popen[str] | None = None
        self._stopped = False
        self._starting = threading.Lock()

    def work_off(
        self, tasks: queue.SimpleQueue[int], configs: Sequence[Config], events: queue.SimpleQueue[Event]
    ) -> None:
        """Take runs from the list until it is empty."""
        while not self._stopped:
            try:
                place = tasks.get_nowait()
            except queue.Empty:
                break
            events.put(Event(place, "running"))
            reason = self._do(configs[place])
            events.put(Event(place, "finished") if reason is None else Event(place, "failed", reason))
        self._close()

    def stop(self) -> None:
        """End at once; the run that is under way can be taken up again later."""
        with self._starting:
            self._stopped = True
            if self._process is not None:
                self._process.kill()

    def _do(self, config: Config) -> str | None:
        """Have one run done; the reason if it failed."""
        task = {"config": config.to_dict(), "root": str(self.root), "at_once": self.at_once}
        try:
            process = self._alive()
            stdin, stdout = process.stdin, process.stdout
            assert stdin is not None
            assert stdout is not None
            stdin.write(json.dumps(task, default=str) + "\n")
            stdin.flush()
            answer = stdout.readline()
            died = "" if answer else _cause_of_death(process.wait())
        except OSError as error:
            answer, died = "", str(error)
        said: dict[str, Any] = json.loads(answer) if answer else {"reason": died, "usable": False}
        reason: str | None = said["reason"]
        if said["usable"]:
            return reason
        self._close()  # after an error in a kernel every later call on the GPU fails in the same process
        return f"{reason} (see {self.log})"

    def _alive(self) -> subprocess.Popen[str]:
        with self._starting:
            if self._stopped:
                raise OSError("stopped")
            if self._process is None:
                self.log.parent.mkdir(parents=True, exist_ok=True)
                gpu = {"CUDA_VISIBLE_DEVICES": self.gpu} if self.gpu else {}
                with self.log.open("a") as log:
                    self._process = subprocess.Popen(  # noqa: S603 - this program itself
                        self.command,
                        stdin=subprocess.PIPE,
                        stdout=subprocess.PIPE,
                        stderr=log,
                        text=True,
                        env=threads.for_worker(threads.cores() // self.at_once, os.environ | gpu),
                        start_new_session=True,  # an interrupt in the terminal is the parent's to handle
                    )
            return self._process

    def _close(self) -> None:
        if self._process is None:
            return
        process, self._process = self._process, None
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            process.stdin.close()
            process.wait(CLOSING_SECONDS)
        except (OSError, subprocess.TimeoutExpired):
            process.kill()
            process.wait()
        process.stdout.close()


def visible_gpus() -> list[str]:
    """Names of the GPUs that this process may use, for one of them to be shown to each worker."""
    import torch

    named = [name for name in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if name]
    count = torch.cuda.device_count()
    return named[:count] if named else [str(number) for number in range(count)]


def _cause_of_death(code: int) -> str:
    if code == -signal.SIGKILL:
        return "the process was killed, as systems short of memory do: try fewer runs at once"
    if code < 0:
        return f"the process died of {signal.Signals(-code).name}"
    return f"the process ended with exit code {code}"


def main() -> None:
    """Do runs until there are no more to do; whatever libraries print must not get between the answers."""
    threads.settle()
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    progress.enable()  # into the log, a line a minute
    tasks: queue.SimpleQueue[str] = queue.SimpleQueue()
    threading.Thread(target=_listen, args=(sys.stdin, tasks), daemon=True).start()
    from bomd.experiments import experiment  # noqa: F401 - before the first run, since PyTorch takes seconds

    while True:
        reason, usable = _attempt(json.loads(tasks.get()))
        answers.write(json.dumps({"reason": reason, "usable": usable}) + "\n")
        answers.flush()


def _listen(stream: TextIO, tasks: queue.SimpleQueue[str]) -> None:
    """Pass tasks on; their end is the end of this process, also when the one that sent them was killed."""
    for line in stream:
        tasks.put(line)
    os._exit(0)


def _attempt(task: dict[str, Any]) -> tuple[str | None, bool]:
    """Do one run: the reason if it failed, and whether this process can be trusted with another."""
    import torch

    from bomd import runs
    from bomd.config import parse
    from bomd.experiments import experiment
    from bomd.methods import METHODS

    runs.measure_anew(task["at_once"])
    try:
        experiment.run(parse(task["config"], METHODS), Path(task["root"]))
    except InputError as error:
        return str(error), True
    except Exception as error:
        traceback.print_exc()
        return f"{type(error).__name__}: {(str(error) or 'no message').splitlines()[0]}", False
    finally:
        if torch.cuda.is_available():
            torch.cuda.empty_cache()  # what is cached here is missing in the processes beside this one
    return None, True


if __name__ == "__main__":
    main()
