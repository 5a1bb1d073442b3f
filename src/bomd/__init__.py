"""Find wrong labels in multi-label image sets, propose better ones, and train on them."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    __version__: str
    from bomd.audits.audit import audit as audit
    from bomd.clean.calibrate import calibrate as calibrate
    from bomd.clean.detect import detect as detect
    from bomd.clean.detect import scores_of as scores_of
    from bomd.clean.graph import nearest_images as nearest_images
    from bomd.clean.heads import cross_fit_heads as cross_fit_heads
    from bomd.clean.neighbours import Neighbours as Neighbours
    from bomd.clean.opinion import form_opinion as form_opinion
    from bomd.clean.posterior import judge as judge
    from bomd.clean.rates import estimate_rates as estimate_rates
    from bomd.clean.relabel import relabel as relabel
    from bomd.clean.vote import vote as vote
    from bomd.config import Config as Config
    from bomd.describe.labelspace import embed as embed
    from bomd.describe.ranking import ranking_loss as ranking_loss
    from bomd.errors import InputError as InputError
    from bomd.experiments.experiment import run as run
    from bomd.models.model import load as load
    from bomd.reports.report import write_report as write_report
    from bomd.tables import Descriptors as Descriptors
    from bomd.tables import Flags as Flags
    from bomd.tables import LabelTable as LabelTable
    from bomd.tables import Opinion as Opinion

# Where each public name lives; nothing is imported before it is used, so that `import bomd` stays instant.
_PLACES = {
    "Config": "config",
    "Descriptors": "tables",
    "Flags": "tables",
    "InputError": "errors",
    "LabelTable": "tables",
    "Neighbours": "clean.neighbours",
    "Opinion": "tables",
    "audit": "audits.audit",
    "calibrate": "clean.calibrate",
    "cross_fit_heads": "clean.heads",
    "detect": "clean.detect",
    "embed": "describe.labelspace",
    "estimate_rates": "clean.rates",
    "form_opinion": "clean.opinion",
    "judge": "clean.posterior",
    "load": "models.model",
    "nearest_images": "clean.graph",
    "ranking_loss": "describe.ranking",
    "relabel": "clean.relabel",
    "run": "experiments.experiment",
    "scores_of": "clean.detect",
    "vote": "clean.vote",
    "write_report": "reports.report",
}

_COMPUTING = ("audit", "load", "nearest_images", "ranking_loss", "run")  # PyTorch is loaded with these

__all__ = sorted(_PLACES)


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from bomd.version import VERSION

        return VERSION
    if name not in _PLACES:
        raise AttributeError(f"module 'bomd' has no attribute {name!r}")
    if name in _COMPUTING:
        from bomd import threads

        threads.settle()
    return getattr(import_module(f"bomd.{_PLACES[name]}"), name)


def __dir__() -> list[str]:
    return __all__
