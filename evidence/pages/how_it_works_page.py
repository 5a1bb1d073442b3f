"""The text of docs/how-it-works.md around the numbers of one run of BoMD on phantoms; see how_it_works.py."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

Numbers = Mapping[str, Any]


def page(numbers: Numbers) -> str:
    """Every number in it comes from the run, or from the settings that the run was made with."""
    noise, found, toy = numbers["noise"], numbers["detection"], numbers["toy"]
    agreeing, contradicting = numbers["agreeing"], numbers["contradicting"]
    weight, uniform = numbers["graph_weight"], numbers["uniform"]
    lone, kept = weight * uniform, (1 - weight) + weight * uniform
    pairs = closest_pairs(numbers)
    right = {name: f"{swapped:.2f} and {others:.2f}" for name, (swapped, others) in toy["right_heap"].items()}
    return f"""# How the method works

<!-- Written by evidence/pages/how_it_works.py from docs/images/how/numbers.json. Do not edit. -->

BoMD looks for labels that contradict the image, and softens them towards the labels of similar images. Then an ordinary
classifier is trained. This page shows each step on {numbers["images"]:,} generated chest X-rays of
{numbers["size"]} pixels. In {noise["rows"]:.0%} of them every label was flipped with probability
{noise["labels"]:g}, so we know which labels are wrong. One seed, the settings of the demo, a CPU. These images are not
those of the [demo's results](demo.md): judge the method by those, and use this page to see what it does.

The array functions named below can be used on their own; see the [Python reference](reference/python.md).

## 1. Class names become vectors

A language model has read every class name. Names with a related meaning get vectors that point in similar directions.
Here the vectors are those of {numbers["language"]}, with {numbers["dimensions"]} numbers each, which come with the
package. The most alike here are {pairs}.

![Cosines between the vectors of all pairs of classes](images/how/label-space.svg)

`bomd embed Mass Nodule Effusion` prints this for any names. Other language models, word vectors, a file of your own
or random vectors can be used instead (`bomd.language`).

## 2. A network describes every image

A network learns {numbers["descriptors"]} vectors per image, the *descriptors*, in the same space. The *score* of a
class is the largest dot product of its vector with any of the descriptors. Training asks for one thing: all given
classes of an image should score above all others. The network sees all images {numbers["epochs"]} times with their
given labels, wrong ones among them. Since wrong labels follow no pattern in the images, they are harder to learn than
right ones.

![Two phantoms with the scores of all classes](images/how/ranking.svg)

Above, an image given as {listed(agreeing["given"])}: the ranking agrees. Below, one given as
{listed(contradicting["given"])}, which in truth shows {listed(contradicting["clean"])}: other classes score higher.
Both were picked because they are clear: the largest margin among the unchanged images with two labels or more that are
kept, and the smallest among the changed images with two to four labels that are flagged. The ranking need not be right
where it contradicts: it says that a label is odd, not what the image shows.

Python: `scores_of`, `ranking_loss`.

## 3. Labels that contradict the ranking are flagged

The *margin* of an image is the score of its lowest given class minus the score of its highest other class. An image
with a margin of 0 or less is flagged. There is no threshold to tune.

![Margins of images with right and with changed labels](images/how/margins.svg)

| measured on these images | |
|---|---|
| images with a changed label | {found["base_rate"]:.1%} |
| flagged images | {found["flagged"]:.1%} |
| of the flagged, truly changed (precision) | {found["precision"]:.1%} |
| of the changed, flagged (recall) | {found["recall"]:.1%} |
| detection AUROC, by the margin | {found["auroc"]:.3f} |
| detection AUROC, by merely counting the given labels | {found["auroc_by_count"]:.3f} |

So {1 - found["precision"]:.0%} of the flagged images had right labels. The last row is a baseline to keep in mind: this
noise adds findings, so an image with many labels is suspect without any network.

Python: `detect`.

## 4. Flagged images look for similar images

The distance of two images is that of their closest pair of descriptors. The {numbers["neighbours"]} nearest images are
the *neighbours*; they are taken from all images, and their labels as given.

![The flagged phantom and its neighbours](images/how/voters.svg)

Python: `nearest_images`.

## 5. The neighbours vote, and the label is mixed

With given label *y*, mean label of the neighbours *v*, λ = {weight:g} and γ = {uniform:g}, the new label of a class is

    (1 − λ) y + λ (γ + (1 − γ) v)     if the image or a neighbour has the class
    0                                 otherwise

![Given label, vote and new label by class](images/how/new-label.svg)

A class that is given but gets no vote falls from 1 to {kept:.2f}, not to 0. A class that is not given needs a single
vote to rise above {lone:.2f}. Labels are softened, not exchanged. Images that are not flagged keep their labels to the
bit, and the given labels are kept beside the new ones.

Over all findings, the AUC of the labels themselves against the truth is {numbers["label_auc"]["before"]:.3f} before and
{numbers["label_auc"]["after"]:.3f} after.

Python: `relabel`.

## 6. Why not just smooth all labels

Two heaps of points, {toy["share"]:.0%} of whose labels are exchanged. A point is its own descriptor, and each heap has
a class vector that points at it. Ordinary label smoothing moves every label towards one half, right or wrong. Negative
smoothing moves all of them away from it. BoMD changes the points that contradict their place, {toy["flagged"]} of
{len(toy["points"])} here, of which {toy["flagged_and_swapped"]} are among the {toy["swapped"]} exchanged ones.

![Two heaps of points coloured by label under three kinds of smoothing](images/how/smoothing.svg)

| labels | mean label of the right heap: exchanged points and others |
|---|---|
| given | {right["given"]} |
| label smoothing, r = 0.6 | {right["label smoothing"]} |
| negative smoothing, r = −0.4 | {right["negative smoothing"]} |
| BoMD | {right["BoMD"]} |

## 7. A classifier is trained on the new labels

From here on nothing is special: binary cross-entropy on the soft labels, and a test on other patients with clean
labels. What this is worth is measured, not assumed: see [the demo](demo.md), [real X-rays](nih-small.md) and
[the other methods](methods.md). Where the paper and its released code differ, and which setting is which, is on
[a page of its own](paper-and-release.md).
"""


def closest_pairs(numbers: Numbers, count: int = 3) -> str:
    """The most alike classes in words."""
    names, cosines = numbers["classes"], numbers["similarities"]
    pairs = [(cosines[i][j], names[j], names[i]) for i in range(len(names)) for j in range(i)]
    best = sorted(pairs, key=lambda pair: (-pair[0], pair[1:]))[:count]
    return listed([f"{first} with {second} ({cosine:.2f})" for cosine, first, second in best])


def listed(names: list[str]) -> str:
    words = [name.replace("_", " ") for name in names]
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"
