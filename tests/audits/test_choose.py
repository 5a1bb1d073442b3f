"""What is chosen for which number of images and minutes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace

import pytest
import torch

from bomd import threads
from bomd.audits import choose as choices
from bomd.audits.choose import candidates, choose, passes, show_time
from bomd.errors import InputError


def pixels(backbone: str, size: int) -> float:
    """Seconds per image that grow with the image; the pretrained network is ten times as slow."""
    return (1e-8 if backbone == "small" else 1e-7) * size**2


def test_the_best_that_fits_the_time() -> None:
    few = choose(100, 512, minutes=10, measure=pixels, device="cpu")
    many = choose(5000, 512, minutes=10, measure=pixels, device="cpu")
    crowd = choose(5_000_000, 512, minutes=10, measure=pixels, device="cpu")
    assert few.seconds <= 600
    assert many.seconds <= 600
    assert few.size >= many.size >= crowd.size == 64
    assert crowd.backbone == "small"
    assert crowd.epochs + crowd.classifier_epochs < sum(passes("small", 5_000_000))
    assert "passes instead of" in crowd.reason


def test_images_are_never_made_larger_than_they_are() -> None:
    assert {size for _, size in candidates("cpu", 70)} == {64, 70}
    assert {size for _, size in candidates("cpu", 8)} == {choices.SMALLEST}
    assert {size for _, size in candidates("cuda", 512, 96)} == {96}


def test_few_images_are_shown_more_often() -> None:
    assert passes("small", 100) == (40, 24)
    assert passes("small", 4000) == (20, 12)
    assert passes("small", 1_000_000) == (6, 4)


@pytest.mark.parametrize("minutes", [0.0, -1.0])
def test_what_cannot_be_is_refused(minutes: float) -> None:
    with pytest.raises(InputError, match="--minutes"):
        choose(10, 64, minutes=minutes, measure=pixels)


def test_the_experiment_judges_every_image_and_adds_no_noise() -> None:
    config = choose(2, 64, measure=pixels, device="cpu").config("audit", {"dataset": "folder"}, 2, 7)
    assert (config.validation, config.noise, config.seed) == (0.0, {}, 7)
    evidence = choose(2, 64, measure=pixels, device="cpu")
    assert config.method == "bomd-plus"
    effort = config.settings["bomd-plus"]["effort"]
    assert round(effort * config.fit.epochs) == evidence.epochs  # as the plan says
    assert config.fit.batch == 2
    assert config.images.skip_broken


def test_time_in_words() -> None:
    assert [show_time(seconds) for seconds in (0.2, 45, 240, 7200)] == [
        "1 seconds",
        "45 seconds",
        "4 minutes",
        "2.0 hours",
    ]


def test_the_plan_says_the_time_as_it_was_given_and_how_many_threads() -> None:
    found = choose(10, 64, minutes=1.5, measure=lambda backbone, size: 1e-6, device="cpu")
    assert "fit 1.5 minutes on this CPU" in found.reason
    assert "thread" not in " ".join(choices.explain(found, 10))
    assert ", by 1 thread. It can" in choices.explain(replace(found, threads=1), 10)[-1]
    assert ", by 2 threads. It can" in choices.explain(replace(found, threads=2), 10)[-1]


def test_a_step_takes_time() -> None:
    assert 0 < choices.time_a_step("small", 32) < 10


def test_threads_are_chosen_and_given_back() -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        assert choices.fastest_threads("small", 32) in (1, 2)
        assert torch.get_num_threads() == 2
        with choose(10, 64, measure=pixels, device="cpu").at_work():
            assert torch.get_num_threads() == 2  # nothing was chosen
        with choices.Choice("small", 64, 2, 2, 1.0, "", threads=1).at_work():
            assert torch.get_num_threads() == 1
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)


def test_a_count_that_was_given_up_is_no_measure_for_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two threads take 4 s against 1 and are given up; then other work makes every step with one thread take 20 s."""
    monkeypatch.setattr(choices, "_training", lambda backbone, size: (lambda: None, torch.device("cpu")))
    alone = iter([1.0, *[20.0] * 100])
    monkeypatch.setattr(choices, "duration", lambda step: 4.0 if torch.get_num_threads() == 2 else next(alone))
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        assert choices.fastest_threads("small", 32) == 1
    finally:
        torch.set_num_threads(before)


@pytest.mark.slow
def test_other_programs_do_not_change_the_plan() -> None:
    """With three busy programs for each core, the time on the clock is several times as long, or worse."""
    script = """
import json, subprocess, sys
from bomd import threads
threads.settle()
from bomd.audits.choose import time_a_step
alone = time_a_step("small", 64)
others = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(3 * threads.cores())]
try:
    print(json.dumps([alone, time_a_step("small", 64), time_a_step("small", 64)]))
finally:
    for one in others:
        one.kill()
        one.wait()
"""
    environment = {name: value for name, value in os.environ.items() if name not in threads.settings(1)}
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, env=environment)
    found = json.loads(done.stdout)
    assert max(found) / min(found) < 2.5, found
