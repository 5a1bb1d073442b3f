from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from bomd.describe.ranking import label_scores, ranking_loss
from bomd.errors import InputError

PLANE = torch.tensor([[[1.0, 0.0], [0.0, 1.0]]])
WORDS = torch.tensor([[1.0, 0.0], [0.0, 1.0], [-1.0, 0.0]])


def loop(bags, words, labels, weighting, beta):
    """The equations, one sample and one pair at a time, in float64."""
    losses = []
    for bag, row in zip(np.float64(bags), labels, strict=True):
        scores = [max(float(v @ w) for v in bag) for w in np.float64(words)]
        positives = [c for c, value in enumerate(row) if value >= 0.5]
        negatives = [c for c, value in enumerate(row) if value < 0.5]
        if not positives:
            continue
        rank = 0.0
        for p in positives:
            for n in negatives:
                rank += math.log1p(math.exp(scores[n] - scores[p]))
            if not negatives:
                rank += math.log1p(math.exp(-scores[p]))
        centre = bag.mean(axis=0)
        spread = sum(float((v - centre) @ (v - centre)) for v in bag)
        if weighting == "paper":
            weight = len(positives) / max(len(negatives), 1)
            losses.append(weight * rank + beta * spread / (bag.shape[1] - 1))
        elif len(bag) == 1:
            losses.append(rank / len(positives))
        else:
            chosen = np.float64(words)[positives]
            variance = chosen.var(axis=0, ddof=1).sum() if len(positives) > 1 else 0.0
            attraction = (1 + variance) * rank / len(positives)
            losses.append(2 * ((1 - beta) * attraction + beta * spread / (len(bag) - 1)))
    return sum(losses) / len(losses)


def random_case(seed, B=24, M=3, D=1024, C=14, rate=0.2, dtype=torch.float32):
    generator = torch.Generator().manual_seed(seed)
    bags = torch.randn(B, M, D, generator=generator, dtype=dtype)
    words = torch.nn.functional.normalize(torch.randn(C, D, generator=generator, dtype=dtype), dim=1)
    labels = (torch.rand(B, C, generator=generator) < rate).float()
    labels[0] = 0.0  # no positive: skipped
    labels[1] = 1.0  # no negative
    labels[2, ::3] = torch.nan
    labels[2, 1] = 1.0
    labels[3] = torch.nan  # nothing known: skipped
    return bags, words, labels


def test_scores_take_the_best_descriptor():
    assert label_scores(PLANE, WORDS).tolist() == [[1.0, 1.0, 0.0]]


@pytest.mark.parametrize(
    ("bags", "words", "labels", "paper", "release"),
    [
        (PLANE, WORDS, [1, 0, 0], 0.803204, 2.008972),
        (  # a third dimension tells D - 1 from M - 1
            torch.tensor([[[1.0, 0, 0], [0, 1, 0]]]),
            torch.tensor([[1.0, 0, 0], [0, 1, 0], [-1, 0, 0]]),
            [1, 0, 0],
            0.653204,
            2.008972,
        ),
        (PLANE, WORDS, [1, 1, 0], 1.553047, 1.477133),
    ],
    ids=["A", "A'", "B"],
)
def test_worked_values(bags, words, labels, paper, release):
    given = torch.tensor([labels], dtype=torch.float32)
    assert ranking_loss(bags, words, given, weighting="paper").loss.item() == pytest.approx(paper, abs=1e-6)
    assert ranking_loss(bags, words, given).loss.item() == pytest.approx(release, abs=2e-6)


@pytest.mark.parametrize("weighting", ["release", "paper"])
@pytest.mark.parametrize("M", [1, 3, 5])
@pytest.mark.parametrize("seed", range(3))
def test_equals_the_loop(weighting, M, seed):
    bags, words, labels = random_case(seed, M=M)
    expected = loop(bags.numpy(), words.numpy(), labels.numpy(), weighting, 0.3)
    result = ranking_loss(bags, words, labels, weighting=weighting)
    assert result.skipped.item() == int((~(labels >= 0.5).any(dim=1)).sum()) >= 2
    assert result.loss.item() == pytest.approx(expected, rel=1e-6)
    wide = ranking_loss(bags.double(), words.double(), labels, weighting=weighting)
    assert wide.loss.dtype == torch.float64
    assert wide.loss.item() == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("weighting", ["release", "paper"])
def test_gradient_matches_finite_differences(weighting):
    bags, words, labels = random_case(5, B=6, M=2, D=4, C=5, rate=0.4, dtype=torch.float64)
    bags.requires_grad_(True)
    assert torch.autograd.gradcheck(
        lambda values: ranking_loss(values, words, labels, weighting=weighting, beta=0.4).loss, (bags,)
    )


@pytest.mark.parametrize("weighting", ["release", "paper"])
def test_huge_scores_stay_finite_and_skipped_rows_get_no_gradient(weighting):
    bags, words, labels = random_case(1)
    bags = (bags * 1e4).requires_grad_(True)
    result = ranking_loss(bags, words, labels, weighting=weighting)
    result.loss.backward()
    assert torch.isfinite(result.loss)
    assert torch.isfinite(bags.grad).all()
    assert bags.grad[0].eq(0).all()
    assert bags.grad[3].eq(0).all()
    assert bags.grad[4].ne(0).any()


@pytest.mark.parametrize("weighting", ["release", "paper"])
def test_order_of_images_descriptors_and_classes_does_not_matter(weighting):
    bags, words, labels = random_case(2, dtype=torch.float64)
    generator = torch.Generator().manual_seed(0)
    images, classes = torch.randperm(24, generator=generator), torch.randperm(14, generator=generator)
    plain = ranking_loss(bags, words, labels, weighting=weighting).loss
    shuffled = ranking_loss(bags[images].flip(1), words[classes], labels[images][:, classes], weighting=weighting).loss
    assert plain.item() == pytest.approx(shuffled.item(), rel=1e-12)


def test_autocast_and_half_inputs_are_computed_in_float32():
    bags, words, labels = random_case(3)
    expected = ranking_loss(bags, words, labels).loss
    with torch.autocast("cpu", dtype=torch.bfloat16):
        inside = ranking_loss(bags, words, labels).loss
    assert inside.dtype == torch.float32
    assert inside.item() == expected.item()
    half = ranking_loss(bags.bfloat16(), words, labels).loss
    assert half.item() == ranking_loss(bags.bfloat16().float(), words, labels).loss.item()


def test_soft_labels_split_at_one_half():
    bags, words, labels = random_case(4)
    soft = torch.where(labels >= 0.5, 0.5, torch.where(labels < 0.5, 0.499, torch.nan))
    assert ranking_loss(bags, words, soft).loss.item() == ranking_loss(bags, words, labels).loss.item()


def test_no_usable_row_gives_zero_with_zero_gradient():
    bags = torch.randn(2, 3, 4, requires_grad=True)
    result = ranking_loss(bags, torch.randn(5, 4), torch.zeros(2, 5))
    result.loss.backward()
    assert result.loss.item() == 0
    assert result.skipped.item() == 2
    assert bags.grad.eq(0).all()


def test_bad_input_is_refused():
    with pytest.raises(InputError, match="do not fit"):
        label_scores(torch.zeros(2, 3, 4), torch.zeros(5, 6))
    with pytest.raises(InputError, match="2 images by 3 classes"):
        ranking_loss(torch.zeros(2, 3, 4), torch.zeros(3, 4), torch.zeros(3, 2))
    with pytest.raises(InputError, match="weighting"):
        ranking_loss(PLANE, WORDS, torch.ones(1, 3), weighting="both")
    with pytest.raises(InputError, match="at least 2"):
        ranking_loss(torch.zeros(1, 2, 1), torch.zeros(3, 1), torch.ones(1, 3), weighting="paper")
