"""Write docs/successor.md and its pictures from the records of bomd-plus in results/.

python -m evidence.pages.successor
"""

from __future__ import annotations

import csv
import math
import textwrap
from collections import defaultdict
from collections.abc import Mapping, Sequence
from statistics import mean, stdev

from matplotlib import rc_context
from matplotlib.figure import Figure
from scipy.stats import t as student  # type: ignore[import-untyped]

from bomd.experiments.noise_names import NO_NOISE, noise_name
from bomd.files import write_text
from bomd.measure.significance import Sample, show
from bomd.reports.sheet import markdown_table
from evidence import DOCS, RESULTS
from evidence.pages import orders
from evidence.pages.how_it_works_figures import STYLE, save
from evidence.records import records_of
from evidence.studies.opinions import BINS

PAGE, PICTURES = DOCS / "successor.md", DOCS / "images" / "successor"
SETS = {"phantom": "generated X-rays", "nih": "real X-rays (NIH)"}
METHODS = ("bce", "nvum", "bomd", "small-loss", "co-teaching", "dividemix", "bomd-plus")
SEEDS = 5
NOISES = (
    NO_NOISE,
    "(0.2, 0.2)",
    "(0.4, 0.4)",
    "(0.6, 0.6)",
    "report_mining share=0.2",
    "sparse",
)
FURTHER = ("bce", "bomd", "small-loss", "bomd-plus")  # methods that were run under the other noises, too
GRID = [f"({rows}, {labels})" for rows in (0.2, 0.4, 0.6) for labels in (0.2, 0.4, 0.6)]
OTHERS = (
    *(noise for noise in GRID if noise not in NOISES),
    "report_mining",
    "report_mining strength=0.5",
    *(f"({level}, {level}) share=0.15" for level in (0.2, 0.4, 0.6)),
)
SPOKEN = {
    NO_NOISE: "none",
    "report_mining": "report mining",
    "report_mining strength=0.5": "report mining at half the rates",
    "report_mining share=0.2": "report mining in 20 %",
}
TESTS = {
    "phantom": {"south": "another hospital", "held-out patients": "held-out patients"},
    "nih": {"held-out patients": "held-out patients", "openi": "OpenI", "google": "Google's labels (one finding)"},
}
RULES = ("bomd-plus", "cleanlab", "small loss", "rank rule", "rarest positives", "most positives")
COLOURS = {
    "(0.2, 0.2)": "#0072b2",
    "(0.4, 0.4)": "#56b4e9",
    "(0.6, 0.6)": "#009e73",
    "report_mining share=0.2": "#d55e00",
    "sparse": "#cc79a7",
}
Scores = dict[tuple[str, str, str], dict[int, float]]  # (test, method, noise) -> seed -> mean AUC


def main() -> None:
    PICTURES.mkdir(parents=True, exist_ok=True)
    with rc_context({**STYLE, "svg.hashsalt": "reliability"}):
        draw_reliability(read_rows())
    write_text(PAGE, page())


def read_rows() -> list[dict[str, str]]:
    with (RESULTS / "opinions.csv").open(encoding="utf-8") as stream:
        return list(csv.DictReader(stream))


def page() -> str:
    """The whole page; every number is from results/."""
    rows = read_rows()
    parts = [HEAD]
    costs, second = [], []
    every: dict[str, Scores] = {}
    for name, title in SETS.items():
        scores, cost = read_scores(f"successor-{name}")
        every[name] = scores
        worth = difference(scores, next(iter(TESTS[name])), "co-teaching", "bce", NO_NOISE)[0]
        second.append(f"{worth:.3f} on {title}")
        costs.append(f"{cost:.2f} on {title}")
        parts.append(f"## Classifiers: {title}\n")
        for test, shown in TESTS[name].items():
            parts.append(f"Mean AUC on {shown}, right labels, mean ± standard deviation over five seeds.\n")
            parts += [auc_table(scores, test), auc_table(scores, test, FURTHER, OTHERS)]
        parts.append(verdicts(scores, TESTS[name]))
    parts.append(f"Cost, in images shown during training against plain training: {' and '.join(costs)}.\n")
    parts.append(single_score())
    parts.append(FINDING)
    for name, title in SETS.items():
        parts += [f"### {title[0].upper()}{title[1:]}\n", rule_table(rows, recipe_of(name))]
        parts.append(orders.earlier(rows, recipe_of(name), spoken))
    parts += [
        orders.section(spoken),
        PROPOSALS,
        proposal_table(rows),
        RELIABILITY,
        trials(),
        f'<details markdown="1"><summary>Once or twice, long or short</summary>\n\n{second_opinions()}\n</details>\n',
        LIMITS.format(second=" and ".join(second), behind=behind(every)),
    ]
    return "\n".join(parts)


def read_scores(name: str) -> tuple[Scores, float]:
    """Mean AUCs of all runs, and the cost of bomd-plus against bce."""
    scores: Scores = defaultdict(dict)
    shown: dict[str, list[int]] = defaultdict(list)
    for record in records_of(name):
        config, result = record.config, record.result
        noise = noise_name(config.noise)
        shown[config.method].append(result.images_presented)
        for test, found in result.tests.items():
            clean = "validation before noise" if noise != NO_NOISE else "validation"
            if test == clean:
                test = "held-out patients"
            elif test.startswith("validation"):
                continue
            scores[test, config.method, noise][config.seed] = found.mean_auc
    return scores, mean(shown["bomd-plus"]) / mean(shown["bce"])


def auc_table(scores: Scores, test: str, methods: Sequence[str] = METHODS, noises: Sequence[str] = NOISES) -> str:
    """Methods x noises; the best mean of a column is bold."""
    means = {noise: means_of(scores, test, noise) for noise in noises}
    lines = []
    for method in methods:
        cells = []
        for noise in noises:
            values = list(scores[test, method, noise].values())
            text = show(Sample.of(values)) if values else "not run"
            text += f" ({len(values)} seeds)" if 0 < len(values) < SEEDS else ""
            cells.append(f"**{text}**" if means[noise].get(method) == max(means[noise].values()) else text)
        lines.append([method, *cells])
    for other in (other for other in ("bce", "bomd", "co-teaching") if other in methods):
        cells = [show_difference(scores, test, "bomd-plus", other, noise) for noise in noises]
        lines.append([f"bomd-plus less {other}", *cells])
    return markdown_table(["method", *map(spoken, noises)], lines, marked_up=True)


def means_of(scores: Scores, test: str, noise: str) -> dict[str, float]:
    """Means of the methods that were run there."""
    return {m: mean(found.values()) for m in METHODS if (found := scores[test, m, noise])}


def difference(scores: Scores, test: str, one: str, other: str, noise: str) -> tuple[float, float, float]:
    """Mean over seeds of the paired difference, half of its 95 % interval, and its two-sided p."""
    ours, theirs = scores[test, one, noise], scores[test, other, noise]
    gaps = [ours[seed] - theirs[seed] for seed in sorted(set(ours) & set(theirs))]
    error = stdev(gaps) / math.sqrt(len(gaps))
    middle = mean(gaps)
    p = 2 * float(student.sf(abs(middle) / error, len(gaps) - 1)) if error else 1.0
    return middle, float(student.ppf(0.975, len(gaps) - 1)) * error, p


def show_difference(scores: Scores, test: str, one: str, other: str, noise: str) -> str:
    middle, half, p = difference(scores, test, one, other, noise)
    return f"{middle:+.3f} ± {half:.3f}{' *' if p < 0.05 else ''}"


def verdicts(scores: Scores, tests: dict[str, str]) -> str:
    """In which cells bomd-plus is where, counted."""
    every = (*NOISES, *OTHERS)
    lines = []
    for test, name in tests.items():
        ahead = {
            noise: [method for method, value in found.items() if value > found["bomd-plus"]]
            for noise in every
            if (found := means_of(scores, test, noise))
        }
        lower = [f"{spoken(n)} ({', '.join(others)})" for n, others in ahead.items() if len(others) > 1]
        gaps = {noise: difference(scores, test, "bomd-plus", "bce", noise) for noise in every}
        above = [spoken(n) for n, (gap, _, p) in gaps.items() if gap > 0 and p < 0.05]
        below = [spoken(n) for n, (gap, _, p) in gaps.items() if gap < 0 and p < 0.05]
        grid = (NO_NOISE, *GRID)
        over = sum(difference(scores, test, "bomd-plus", "bomd", n)[0] > 0 for n in grid)
        lines.append(
            f"- {name}: highest or second-highest mean in {len(ahead) - len(lower)} of {len(ahead)} cells"
            f"{'; not in ' + ', '.join(lower) + ', where those in brackets are ahead' if lower else ''}. Significantly "
            f"(paired, .05) above bce in {', '.join(above) or 'none'}; below it in {', '.join(below) or 'none'}. Above "
            f"bomd in {over} of the {len(grid)} cells of the paper's grid."
        )
    return "\n".join(lines) + "\n"


def behind(every: Mapping[str, Scores]) -> str:
    """In how many cells others are ahead where bomd-plus learns labels as given, and where co-teaching is ahead."""

    def ahead(name: str, test: str, method: str, noise: str) -> bool:
        means = means_of(every[name], test, noise)
        return method in means and means[method] > means["bomd-plus"]

    def counted(method: str, noises: Sequence[str]) -> str:
        cells = [ahead(name, test, method, noise) for name in SETS for test in TESTS[name] for noise in noises]
        return f"{method} is ahead in {sum(cells)} of {len(cells)}"

    few, mined = ("(0.4, 0.2)", "(0.6, 0.2)"), [noise for noise in (*NOISES, *OTHERS) if "report_mining" in noise]
    places = []
    for test, shown in TESTS["nih"].items():
        noises = [
            noise if noise == NO_NOISE else spoken(noise)
            for noise in NOISES
            if ahead("nih", test, "co-teaching", noise)
        ]
        places.append(f"on {shown} {'under ' + ', '.join(noises) if noises else 'nowhere'}")
    text = (
        f"with errors in few labels, and over all test sets, {counted('small-loss', few)} cells and "
        f"{counted('bomd', few)}; under report mining {counted('bomd', mined)} and {counted('small-loss', mined)}. On "
        f"real X-rays co-teaching is ahead {'; '.join(places)}."
    )
    return textwrap.fill(text, 118, initial_indent="  ", subsequent_indent="  ")


def single_score() -> str:
    """The baseline of one score for all findings, and the shared term."""
    found: dict[tuple[str, str], list[tuple[float, float, float]]] = defaultdict(list)
    for row in csv.DictReader((RESULTS / "abnormality.csv").open(encoding="utf-8")):
        test = row["test"]
        if test == "validation" and row["noise"] != NO_NOISE:
            continue
        test = "held-out patients" if test.startswith("validation") else test
        found[test, row["method"]].append(tuple(float(row[key]) for key in ("auc", "single", "with_shared")))  # type: ignore[arg-type]
    lines = []
    for test in ("held-out patients", "openi", "google"):
        for method in ("bce", "bomd-plus"):
            own, single, shared = (mean(column) for column in zip(*found[test, method], strict=True))
            lines.append([test, method, f"{own:.3f}", f"{single:.3f}", f"{shared:.3f}"])
    heads = ["test", "method", "own scores", "one score for all", "with the shared term"]
    return f"{SINGLE}\n{markdown_table(heads, lines)}"


def rule_table(rows: list[dict[str, str]], recipe: str) -> str:
    lines = []
    for noise in NOISES[1:]:
        for rule in RULES:
            own = [row for row in rows if (row["recipe"], row["noise"], row["rule"]) == (recipe, noise, rule)]
            cells = [f"{mean(float(row[key]) for row in own):.3f}" for key in ("label_ap", "image_ap")]
            cells += [f"{mean(float(row[f'hits_{count}']) for row in own):.0f}" for count in (100, 200, 500)]
            lines.append([spoken(noise), rule, *cells])
    return markdown_table(["noise", "rule", "label AP", "image AP", "wrong in first 100", "200", "500"], lines)


def proposal_table(rows: list[dict[str, str]]) -> str:
    heads = ["set", "noise", "proposed", "right", "of those from .8", "right", "wrong before"]
    lines = []
    for name, title in SETS.items():
        for noise in NOISES[1:]:
            own = [r for r in rows if (r["recipe"], r["noise"], r["rule"]) == (recipe_of(name), noise, "bomd-plus")]
            keys = ("proposed_0.5", "right_0.5", "proposed_0.8", "right_0.8", "wrong_before", "wrong_after_100")
            cells = [f"{mean(float(row[key]) for row in own):.0f}" for key in (*keys, "wrong_after_all")]
            lines.append([title, spoken(noise), *cells])
    return markdown_table([*heads, "after the first 100 images", "after all"], lines)


def trials() -> str:
    """What was tried on data that chooses, and lost or won."""
    found: dict[tuple[str, str, str], dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for row in csv.DictReader((RESULTS / "successor-trials.csv").open(encoding="utf-8")):
        found[row["trial"], row["set"], row["form"]][row["noise"]].append(float(row["auc"]))
    columns = (*NOISES, "report_mining")
    lines = []
    for (trial, set_, form), by_noise in found.items():
        cells = [f"{mean(by_noise[noise]):.3f}" if noise in by_noise else "" for noise in columns]
        lines.append([trial, SETS[set_], form, *cells])
    return f"{TRIALS}\n{markdown_table(['trial', 'set', 'form', *map(spoken, columns)], lines, marked_up=True)}"


def second_opinions() -> str:
    """Forms of the second opinion at about equal cost, on data that chooses."""
    found: dict[tuple[str, str], dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for row in csv.DictReader((RESULTS / "second-opinion.csv").open(encoding="utf-8")):
        found[row["set"], row["form"]][row["noise"]].append(float(row["auc"]))
    columns = [noise for noise in NOISES if any(noise in by_noise for by_noise in found.values())]
    lines = []
    for (set_, form), by_noise in found.items():
        cells = [f"{mean(by_noise[noise]):.3f}" if noise in by_noise else "" for noise in columns]
        lines.append([SETS[set_], form, *cells])
    return f"{SECOND}\n{markdown_table(['set', 'settings', *map(spoken, columns)], lines, marked_up=True)}"


def draw_reliability(rows: list[dict[str, str]]) -> None:
    """Share of right proposals against their stated probability."""
    figure = Figure(figsize=(8, 3.6), layout="constrained")
    axes = figure.subplots(1, 2, sharey=True)
    for axis, (name, title) in zip(axes, SETS.items(), strict=True):
        axis.plot([0.6, 1], [0.6, 1], color="0.7", linewidth=1, label="as stated")
        for noise, colour in COLOURS.items():
            own = [r for r in rows if (r["recipe"], r["noise"], r["rule"]) == (recipe_of(name), noise, "bomd-plus")]
            made = {low: sum(float(row[f"made_{low}"]) for row in own) for low, _ in BINS}
            held = {low: sum(float(row[f"held_{low}"]) for row in own) for low, _ in BINS}
            points = [(min(low + 0.05, 0.95), held[low] / made[low]) for low, _ in BINS if made[low] >= 30]
            axis.plot(*zip(*points, strict=True), "o-", color=colour, markersize=4, label=spoken(noise))
        axis.set(
            title=title,
            xlabel="stated probability that the label is wrong",
            ylim=(0.4, 1.02),
            xticks=(0.6, 0.7, 0.8, 0.9, 1),
        )
        axis.spines[["top", "right"]].set_visible(False)
    axes[0].set_ylabel("share that was wrong")
    axes[0].legend(frameon=False, fontsize=8, loc="lower right")  # where no line runs
    save(figure, PICTURES / "reliability.svg")


def recipe_of(name: str) -> str:
    return "nih-64" if name == "nih" else "successor-phantom"


def spoken(noise: str) -> str:
    """The noise of a column in the words of this page."""
    return SPOKEN.get(noise, noise.replace(" share=0.15", " on 15 %"))


HEAD = """# The successor: bomd-plus

`bomd-plus` keeps BoMD's plan (describe, detect, re-label, train) and changes each step. Networks that never saw a
patient judge its labels. From that evidence and the labels alone it estimates how often labels are wrong and whether
errors sit in whole images; every label then has a probability of being wrong. Where errors sit in whole images, the
classifier learns the probability that a finding is there, and suspect images count for less; where they fall anywhere,
labels are learnt as given, and the probabilities serve people who review.

## How a label is judged

1. The patients are split in two. A network trained on one half scores the other, in 80 % of the epochs: together the
   cost of 0.8 trainings.
2. Logistic regression turns the scores of a class into p, the probability that the *given* label is positive.
3. Take the third of the images that look least like a class. How often the class is given there is an upper bound for
   f, the rate of its false alarms. The rarest class gives the lowest bound, and all classes use it. Misses, m, are
   taken to be a quarter as many, within 2 and 40 % of the positives.
4. The probability of the *true* label is then t = (p - f) / (1 - f - m).
5. If all errors fell on a share s of the images, with rates f/s and m/s there, labels of one image would be surprising
   together. The share under which the labels are most likely is believed, if it explains them by at least .01 nats an
   image better than s = 1.
6. Bayes' rule gives the probability that an image is affected (with half of the evidence, since labels of an image
   depend on each other), and that a label is wrong.
7. A change is proposed from a probability of .6 on, for classes that the evidence tells apart by two standard errors;
   of any class in an image that is affected with a probability of .9 or more. Images are ordered by how errors seem to
   come about ([order of review](#order-of-review)).
8. Where affected images explain the labels by at least .007 nats a label, networks as in step 1 are trained for 40 %
   of the epochs on what was believed, suspect images counting for less, and steps 2 to 7 are done again. The classifier
   then learns the probability that a finding is there, and an image counts for as much as it is less suspect than an
   average one. Otherwise the classifier learns the given labels.

Rates that somebody measured take the place of the estimates (`bomd audit --rates`). In Python: `form_opinion`, or its
parts `calibrate`, `estimate_rates` and `judge`.

## What was run

[Where the numbers are](benchmarks.md#where-the-numbers-are) names the records, and the commands that make them.
Five seeds each, on one H200: 4,000 generated X-rays (the demo's recipe) and the real NIH subset at 64 px (`nih-64`).
Noise (rows, labels) flips labels of a share of the rows; *report mining in 20 %* gives a fifth of the patients the
errors of mined labels; *sparse* puts one added, dropped or swapped finding into a fifth of the rows. Settings were
chosen on held-out NIH patients of other seeds and on phantoms of other seeds; OpenI and Google's labels chose nothing.
The order of review was chosen on other seeds ([below](#order-of-review)); the limit of a proposal and the rule for
affected images were settled with errors planted in these very sets in view, so that the numbers under *Proposals* are
not those of untouched data.
Three things were chosen with data of these tables in view. The rule for affected images: the scores under *sparse*,
test sets included. The limit of step 8: *report mining in 20 %*, held-out NIH patients included, and phantoms of
another seed. Its exact place: how clearly the labels of each set point to affected images. The other noises, in the
second table of each test set, chose nothing: they were run after everything was settled.
Differences are paired by seed, ± half of a 95 % interval; * marks p < .05.
"""
SINGLE = """### One score for all findings

How little an image looks like "No Finding", taken for every finding alike, is a baseline that no table should hide.
Means over all noise kinds, real X-rays. Adding that score to each finding's own is an option of every method
(`fit.abnormality`). It was left out of `bomd-plus` with Google's labels in view, where it costs most and which should
choose nothing; by held-out patients alone the last column would speak for it.
"""
FINDING = """## Finding wrong labels

Every rule sees the same labels and the same out-of-fold scores; the last two look at no image. AP is average precision;
*wrong in first n* counts images with a wrong label among the n that a rule would show first. Means over five seeds.
Scores of generated X-rays are of the same runs on a CPU.
"""
PROPOSALS = """## Proposals

What a person is asked to accept, at a probability of .6 or more, and what it would mean to accept all of it. Labels of
real X-rays count as right before noise is added, though many are not: proposals that mend those count as wrong here.
"""
RELIABILITY = """![Share of right proposals against their stated probability](images/successor/reliability.svg)

Above the grey line more labels were wrong than was stated, below it fewer. The probabilities are no exact promise:
rates of errors are estimated from the labels alone.
"""
TRIALS = """## What was tried, and lost

Mean AUC with right labels on data that chooses: 30 % of the NIH patients, held out, and the other hospital of phantoms
of another seed. The first and third trial have two seeds, the second three others; differences below .02 are noise. In
the first, labels were softened whatever the noise: under report mining of all labels that lost much against plain
training, so that they are now learnt as given wherever errors fall on any image. Votes of the nearest images won
nothing. In the third, numbers are epochs of the judging pairs as shares of the classifier's; a classifier that predicts
together with the pair, that leaves out what it finds hard itself, or that learns mixtures won nothing
on both sets, and descriptors judge no better than a plain classifier of the same cost.
"""
SECOND = """\
Two seeds each, as in the third trial. *effort* and *second* are epochs of the first and second pair as shares of the
classifier's. Where nothing else is said: folds 2, effort 1, second 0 (nobody is asked again), soften true. Not to
soften under report mining won on phantoms.
"""
LIMITS = """
## What to know about these rows

- **Where bomd-plus is behind.** With errors in few labels of an image, (0.4, 0.2) and (0.6, 0.2), and with those of
  report mining, affected images do not stand out, so that labels are mostly learnt as given: the row is bce's or close
  to it. Others change labels anyway:
{behind}
- co-teaching is told how many images are wrong in each cell, and predicts with two networks; without noise, where it
  discards nothing, the second network alone is worth
  {second}.
  dividemix also predicts with two. bomd-plus is told nothing and predicts with one.
- small-loss trains its judge as long as the classifier (`small-loss.share=1`, chosen in the tuning that every method
  had, `results/tuning.md`), which costs 2 trainings; with its own default it loses more without noise.
- OpenI's labels of bce and bomd in the first table are of an earlier reading of its terms (`docs/datasets.md`); compare
  bomd-plus with nvum, small-loss, co-teaching and dividemix there. In the second table all are of the present one.
- Not run: dividemix without noise on two of the five seeds of phantoms.
"""

if __name__ == "__main__":
    main()
