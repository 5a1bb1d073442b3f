"""What one pass of a well-known backbone costs on a CPU, as a share of the training that `bomd audit` does without it.

python -m evidence.studies.backbones          # times them: minutes; writes results/backbones.csv and the page's table
python -m evidence.studies.backbones --page   # the table alone, from the file

Networks are of the published form with random weights, which take as long as trained ones. The processor time of one
thread is taken, which other programs hardly change.
"""

from __future__ import annotations

import csv
import io
import sys
import time
from collections.abc import Callable

import torch
from torch import nn

from bomd.audits.choose import passes
from bomd.data.batches import normalise
from bomd.files import write_text
from bomd.networks.backbone import build
from evidence import DOCS, RESULTS

FILE, PAGE = RESULTS / "backbones.csv", DOCS / "backbones.md"
BEGIN, END = "<!-- times: python -m evidence.studies.backbones -->", "<!-- end of times -->"
IMAGES = 10_000  # of the audit that is compared with
TRAINED, SIDE = "efficientnet_lite0", 128  # what an audit trains on a CPU, where its time allows
BATCH, REPEATS = 2, 3


def forms() -> dict[str, tuple[int, Callable[[], nn.Module]]]:
    """Side of the images, and what makes the network, by the name it is known under."""
    import transformers as hf

    def of(kind: str, config: object) -> Callable[[], nn.Module]:
        return lambda: getattr(hf, kind)(config)

    dino = hf.Dinov2Config(image_size=518, patch_size=14)
    return {
        "EfficientNet-lite0": (224, lambda: build("efficientnet_lite0", 1, weights="none", seed=0).trunk),
        "DenseNet-121": (224, lambda: build("densenet121", 1, weights="none", seed=0).trunk),
        "Swin-T": (224, of("SwinModel", hf.SwinConfig())),
        "ConvNeXt-T": (224, of("ConvNextModel", hf.ConvNextConfig())),
        "CLIP ViT-B/32": (224, of("CLIPVisionModel", hf.CLIPVisionConfig())),
        "ViT-B/16": (224, of("ViTModel", hf.ViTConfig())),
        "DINOv2-B": (224, of("Dinov2Model", dino)),
        "RAD-DINO (DINOv2-B)": (518, of("Dinov2Model", dino)),
    }


def seconds(step: Callable[[], object]) -> float:
    """Of one thread, for one image: the fastest of a few, after one that warms up."""
    step()
    times = []
    for _ in range(REPEATS):
        began = time.process_time()
        step()
        times.append(time.process_time() - began)
    return min(times) / BATCH


def training_step() -> Callable[[], object]:
    network = build(TRAINED, 14, weights="none", seed=0).train()
    images = normalise(torch.full((BATCH, SIDE, SIDE), 128), network.channels)
    optimiser = torch.optim.Adam(network.parameters())

    def step() -> None:
        optimiser.zero_grad()
        network(images).square().mean().backward()
        optimiser.step()

    return step


def measure() -> list[dict[str, str]]:
    """One row for each network."""
    torch.set_num_threads(1)
    learnt = seconds(training_step()) * sum(passes(TRAINED, IMAGES))
    rows = []
    for name, (side, make) in forms().items():
        network = make().eval()
        images = torch.zeros(BATCH, 3, side, side)
        with torch.no_grad():
            spent = seconds(lambda network=network, images=images: network(images))  # type: ignore[misc]
        count = sum(weight.numel() for weight in network.parameters())
        rows.append({"backbone": name, "size": str(side), "parameters": str(count), "share": f"{spent / learnt:.3g}"})
        print(rows[-1], flush=True)
    return rows


def table(rows: list[dict[str, str]]) -> str:
    """The rows for people."""
    lines = ["| backbone | images | parameters | features of all images, training = 1 |", "|---|---|---|---|"]
    for row in rows:
        millions = f"{int(row['parameters']) / 1e6:.0f} million"
        lines.append(f"| {row['backbone']} | {row['size']} px | {millions} | {float(row['share']):.2g} |")
    return "\n".join(lines)


def page(text: str, rows: list[dict[str, str]]) -> str:
    """The page with the table as it is now."""
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n{table(rows)}\n{END}{after}"


def read() -> list[dict[str, str]]:
    with FILE.open(newline="", encoding="utf-8") as stream:
        return list(csv.DictReader(stream))


def main() -> None:
    if "--page" not in sys.argv[1:]:
        rows, stream = measure(), io.StringIO()
        writer = csv.DictWriter(stream, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
        write_text(FILE, stream.getvalue())
    if PAGE.is_file():
        write_text(PAGE, page(PAGE.read_text(encoding="utf-8"), read()))


if __name__ == "__main__":
    main()
