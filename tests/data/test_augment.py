"""Augmentation: the one resampling against explicit loops, its limits, and what must not matter."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from bomd.data.augment import KINDS, Motion, draw, move
from bomd.errors import InputError


def noise(count: int, side: int, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(0, 256, (count, side, side), generator=generator, dtype=torch.uint8)


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def augment(images: Tensor, kind: str, source: torch.Generator) -> Tensor:
    """Images moved by a freshly drawn motion, as the training loop moves them."""
    return move(images, draw(len(images), kind, source))


def still(matrix: Tensor, padding: str = "zeros") -> Motion:
    """A motion without jitter."""
    ones = torch.ones(len(matrix))
    return Motion(matrix, ones, ones, padding)


def resample_loop(image: Tensor, matrix: Tensor) -> Tensor:
    """Bilinear resampling with black outside, pixel by pixel; pixel centres lie at (2 i + 1) / S - 1."""
    side = len(image)
    result = torch.zeros(side, side, dtype=torch.float64)
    for row in range(side):
        for column in range(side):
            x, y = (2 * column + 1) / side - 1, (2 * row + 1) / side - 1
            u = float(matrix[0, 0]) * x + float(matrix[0, 1]) * y + float(matrix[0, 2])
            v = float(matrix[1, 0]) * x + float(matrix[1, 1]) * y + float(matrix[1, 2])
            across, down = ((u + 1) * side - 1) / 2, ((v + 1) * side - 1) / 2
            left, top = math.floor(across), math.floor(down)
            for r, c in ((top, left), (top, left + 1), (top + 1, left), (top + 1, left + 1)):
                if 0 <= r < side and 0 <= c < side:
                    weight = (1 - abs(across - c)) * (1 - abs(down - r))
                    result[row, column] += weight * float(image[r, c])
    return result


def test_identity_and_flip_are_exact() -> None:
    images = noise(2, 64)
    identity = torch.tensor([[1.0, 0, 0], [0, 1, 0]]).expand(2, 2, 3)
    flip = torch.tensor([[-1.0, 0, 0], [0, 1, 0]]).expand(2, 2, 3)
    assert torch.equal(move(images, still(identity)), images.float())
    assert torch.equal(move(images, still(flip)), images.float().flip(-1))


def test_whole_crops_of_the_paper_are_the_image_or_its_mirror(monkeypatch: pytest.MonkeyPatch) -> None:
    images = noise(64, 32)
    monkeypatch.setitem(KINDS, "paper", replace(KINDS["paper"], crop=(1.0, 1.0)))
    result = augment(images, "paper", generator())
    plain = torch.isclose(result, images.float(), atol=1e-3).flatten(1).all(dim=1)
    mirrored = torch.isclose(result, images.float().flip(-1), atol=1e-3).flatten(1).all(dim=1)
    assert (plain ^ mirrored).all()
    assert 15 < int(mirrored.sum()) < 49


def test_quarter_turn_and_shift_move_pixels_to_the_known_place() -> None:
    """x_in = -y_out, y_in = x_out turns by 90 degrees; a shift by 2 / S is one pixel."""
    images = noise(1, 16)
    turn = torch.tensor([[[0.0, -1, 0], [1, 0, 0]]])
    assert torch.allclose(move(images, still(turn))[0], torch.rot90(images[0], 1).float(), atol=1e-3)
    shift = torch.tensor([[[1.0, 0, 2 / 16], [0, 1, 0]]])
    moved = move(images, still(shift))[0]
    assert torch.allclose(moved[:, :-1], images[0, :, 1:].float(), atol=1e-3)
    assert (moved[:, -1].abs() < 1e-3).all()


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_resampling_equals_the_loop(kind: str) -> None:
    images = noise(3, 12)
    motion = draw(3, kind, generator(5))
    expected = torch.stack([resample_loop(*pair) for pair in zip(images, motion.matrix, strict=True)])
    result = move(images, still(motion.matrix))
    assert torch.allclose(result.double(), expected, atol=0.02)


def test_a_crop_shows_the_right_box_enlarged() -> None:
    """Rows 8..23 and columns 4..27 of 32 against an ordinary resize of that piece, away from its edges."""
    image = F.avg_pool2d(noise(1, 34).float()[None], 3, stride=1)[0]
    top, bottom, left, right = 8, 24, 4, 28
    width, height = (right - left) / 32, (bottom - top) / 32
    matrix = torch.tensor([[[width, 0, (left + right) / 32 - 1], [0, height, (top + bottom) / 32 - 1]]])
    result = move(image, still(matrix, "border"))
    expected = F.interpolate(image[None, :, top:bottom, left:right], (32, 32), mode="bilinear")[0]
    assert torch.allclose(result[:, 2:-2, 2:-2], expected[:, 2:-2, 2:-2], atol=1e-2)


def test_crops_lie_inside_and_have_the_asked_area_and_ratio() -> None:
    matrix = draw(20_000, "paper", generator()).matrix
    width, height = matrix[:, 0, 0].abs(), matrix[:, 1, 1]
    assert (matrix[:, 0, 1].abs() < 1e-6).all()
    assert (matrix[:, 1, 0].abs() < 1e-6).all()
    assert (matrix[:, 0, 2].abs() + width <= 1 + 1e-6).all()
    assert (matrix[:, 1, 2].abs() + height <= 1 + 1e-6).all()
    area, ratio = width * height, width / height
    assert 0.2 - 1e-5 <= float(area.min()) < 0.21
    assert 0.99 < float(area.max()) <= 1 + 1e-5
    assert abs(float(area.mean()) - 0.6) < 0.01
    assert 3 / 4 - 1e-5 <= float(ratio.min()) < 0.76
    assert 1.32 < float(ratio.max()) <= 4 / 3 + 1e-5
    assert abs(float(ratio.log().mean())) < 0.01  # wide and high crops are equally likely
    assert abs(float((matrix[:, 0, 0] < 0).float().mean()) - 0.5) < 0.02
    assert abs(float(matrix[:, :, 2].mean())) < 0.01


@pytest.mark.parametrize("kind", ["release", "light"])
def test_affine_motion_stays_within_its_ranges_and_reaches_them(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the whole image as crop, output position = flip, then M x + t; M = scale * rotation * shear."""
    ranges = replace(KINDS[kind], crop=(1.0, 1.0))
    monkeypatch.setitem(KINDS, kind, ranges)
    count = 20_000
    motion = draw(count, kind, generator())
    last = torch.tensor([0.0, 0, 1]).expand(count, 1, 3)
    forward = torch.linalg.inv(torch.cat([motion.matrix, last], dim=1).double())
    linear, shift = forward[:, :2, :2], forward[:, :2, 2]
    flip = torch.linalg.det(linear).sign()
    linear = linear * torch.stack([flip, torch.ones(count)], dim=1)[:, None, :]  # undo the flip of x
    scale = torch.linalg.det(linear).sqrt()
    angle = torch.rad2deg(torch.atan2(linear[:, 1, 0], linear[:, 0, 0]))
    along, upright = linear[:, :, 0], linear[:, :, 1]
    shear = torch.rad2deg(torch.atan((along * upright).sum(dim=1) / scale**2))
    for values, low, high in (
        (scale, *ranges.scale),
        (angle, -ranges.degrees, ranges.degrees),
        (shear, -ranges.shear, ranges.shear),
        (shift, -2 * ranges.translate, 2 * ranges.translate),
        (motion.brightness, *ranges.jitter),
        (motion.contrast, *ranges.jitter),
    ):
        slack = 0.01 * (high - low) + 1e-4
        assert low - 1e-4 <= float(values.min()) <= low + slack
        assert high - slack <= float(values.max()) <= high + 1e-4


def test_brightness_scales_and_contrast_stretches_around_the_mean() -> None:
    image = torch.tensor([[[40.0, 80.0], [120.0, 160.0]]])
    identity = torch.tensor([[[1.0, 0, 0], [0, 1, 0]]])
    bright = move(image, Motion(identity, torch.tensor([1.1]), torch.ones(1), "zeros"))
    assert torch.allclose(bright, image * 1.1)
    hard = move(image, Motion(identity, torch.ones(1), torch.tensor([1.1]), "zeros"))
    assert torch.allclose(hard, torch.tensor([[[34.0, 78.0], [122.0, 166.0]]]))


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_values_stay_in_range_and_the_same_generator_gives_the_same_batch(kind: str) -> None:
    images = noise(16, 24)
    first = augment(images, kind, generator(3))
    assert first.shape == images.shape
    assert first.dtype == torch.float32
    assert 0 <= float(first.min()) <= float(first.max()) <= 255
    assert torch.equal(first, augment(images, kind, generator(3)))
    assert torch.equal(first, augment(images.float(), kind, generator(3)))
    assert not torch.allclose(first, augment(images, kind, generator(4)))


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_an_image_does_not_depend_on_its_batch(kind: str) -> None:
    images, motion = noise(5, 16), draw(5, kind, generator())
    together = move(images, motion)
    for row in range(5):
        one = slice(row, row + 1)
        alone = Motion(motion.matrix[one], motion.brightness[one], motion.contrast[one], motion.padding)
        assert torch.allclose(move(images[one], alone), together[one], atol=1e-4)


def test_every_kind_takes_the_same_number_of_draws() -> None:
    states = []
    for kind in KINDS:
        source = generator()
        draw(7, kind, source)
        states.append(source.get_state())
    assert all(torch.equal(state, states[0]) for state in states)


def test_half_precision_around_it_does_not_touch_the_coordinates() -> None:
    images = noise(4, 96)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        inside = augment(images, "release", generator())
    assert inside.dtype == torch.float32
    assert torch.allclose(inside, augment(images, "release", generator()), atol=1e-2)


def test_a_crop_at_the_edge_of_the_paper_kind_does_not_fade() -> None:
    white = torch.full((50, 16, 16), 200.0)
    assert torch.allclose(augment(white, "paper", generator()), white, atol=1e-3)


def test_wrong_settings_are_refused() -> None:
    with pytest.raises(InputError, match=r"Unknown augmentation 'heavy'; choose from none, "):
        augment(noise(1, 8), "heavy", generator())
    with pytest.raises(ValueError, match="square"):
        augment(torch.zeros(1, 8, 9), "paper", generator())


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_the_device_makes_no_difference() -> None:
    images = noise(8, 64)
    on_gpu = augment(images.cuda(), "release", generator()).cpu()
    assert torch.allclose(on_gpu, augment(images, "release", generator()), atol=0.05)
