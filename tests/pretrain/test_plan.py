"""What a start is made of, and when it counts as another one."""

from __future__ import annotations

from dataclasses import replace

import pytest

from bomd.config import FitSettings
from bomd.errors import InputError
from bomd.pretrain.plan import Plan, usual
from bomd.pretrain.provide import beneath, parts

PLAN = Plan("small", "none", 32, 60, 1)


def test_every_setting_makes_another_start() -> None:
    changes = {
        "size": 64,
        "count": 61,
        "epochs": 2,
        "hospitals": ("north",),
        "targets": ("severity",),
        "batch": 32,
        "rate": 0.001,
        "seed": 1,
        "backbone": "densenet121",
    }
    keys = [replace(PLAN, **{name: value}).key for name, value in changes.items()]
    assert len({PLAN.key, *keys}) == 1 + len(changes)
    assert replace(PLAN).key == PLAN.key


def test_a_cpu_gets_fewer_and_smaller_phantoms_than_a_gpu() -> None:
    cpu, gpu = (usual("small", "none", 512, device) for device in ("cpu", "cuda"))
    assert cpu.count * cpu.epochs * cpu.size**2 < gpu.count * gpu.epochs * gpu.size**2 / 10
    assert (cpu.size, gpu.size) == (128, 256)
    assert usual("small", "none", 64, "cuda").size == 64
    assert usual("small", "none", 64, "cuda", count=40).count == 40


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"backbone": "big"}, "No backbone 'big'"),
        ({"base": "imagenet"}, "no ImageNet weights of 'small'"),
        ({"hospitals": ("west",)}, "no hospital 'west'.*varied"),
        ({"hospitals": ()}, "at least one hospital"),
        ({"targets": ("age",)}, "cannot teach 'age': choose from severity, place"),
        ({"size": 8}, "8 pixels"),
        ({"count": 3}, "3 phantoms are too few"),
        ({"epochs": 0}, "epochs >= 1"),
    ],
)
def test_impossible_plans_are_one_line(changes: dict[str, object], message: str) -> None:
    with pytest.raises(InputError, match=message) as caught:
        replace(PLAN, **changes)  # type: ignore[arg-type]
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("weights", "expected"),
    [
        ("phantom", ("none", ("phantom",))),
        ("none+phantom", ("none", ("phantom",))),
        ("imagenet+phantom", ("imagenet", ("phantom",))),
        ("self", ("none", ("self",))),
        ("imagenet+phantom+self", ("imagenet", ("phantom", "self"))),
    ],
)
def test_names_of_starts(weights: str, expected: tuple[str, tuple[str, ...]]) -> None:
    assert parts(weights) == expected
    assert beneath(FitSettings(weights=weights)).weights == expected[0]


@pytest.mark.parametrize("weights", ["phantom+imagenet", "self+phantom", "phantom+phantom", "imagenet+none+phantom"])
def test_names_in_another_order_are_refused(weights: str) -> None:
    with pytest.raises(InputError, match="use none, imagenet, phantom, self"):
        parts(weights)


@pytest.mark.parametrize("weights", ["phantom", "imagenet+self"])
def test_models_of_other_people_keep_their_own_weights(weights: str) -> None:
    with pytest.raises(InputError, match=r"are made for .*, not for 'hf:someone/model': it has its own"):
        beneath(FitSettings(backbone="hf:someone/model", weights=weights))


@pytest.mark.parametrize("weights", ["none", "imagenet", "runs/imagenet+phantom", "weights.pth"])
def test_other_weights_stay_what_they_are(weights: str) -> None:
    assert beneath(FitSettings(weights=weights)).weights == weights
