"""Room 5: one file per way to learn from noisy labels. To add one, add its line here."""

from __future__ import annotations

from bomd.methods.asl import Asl
from bomd.methods.auc_margin import AucMargin
from bomd.methods.balancemix import BalanceMix
from bomd.methods.base import Method
from bomd.methods.bce import Bce
from bomd.methods.bomd import Bomd, BomdPaper
from bomd.methods.bomd_plus import BomdPlus
from bomd.methods.can import Can
from bomd.methods.cleanlab import Cleanlab
from bomd.methods.co_teaching import CoTeaching
from bomd.methods.coop import Coop
from bomd.methods.decoupling import Decoupling
from bomd.methods.dividemix import DivideMix
from bomd.methods.elr import Elr
from bomd.methods.f_correction import FCorrection
from bomd.methods.fine import Fine
from bomd.methods.gls import Gls
from bomd.methods.hermoza import Hermoza
from bomd.methods.hlc import Hlc
from bomd.methods.li_transition import LiTransition
from bomd.methods.ls import Ls
from bomd.methods.mentornet import MentorNet
from bomd.methods.ncr import Ncr
from bomd.methods.npc import Npc
from bomd.methods.nvum import Nvum
from bomd.methods.ols import Ols
from bomd.methods.ols_sample import OlsSample
from bomd.methods.small_loss import SmallLoss
from bomd.methods.xue import Xue

METHODS: dict[str, type[Method]] = {
    # the paper's tables
    "bce": Bce,
    "ls": Ls,
    "gls": Gls,
    "ols": Ols,
    "ols-sample": OlsSample,
    "elr": Elr,
    "nvum": Nvum,
    "ncr": Ncr,
    "npc": Npc,
    "dividemix": DivideMix,
    "fine": Fine,
    "co-teaching": CoTeaching,
    "decoupling": Decoupling,
    "mentornet": MentorNet,
    "f-correction": FCorrection,
    "xue": Xue,
    "can": Can,
    "hermoza": Hermoza,
    "coop": Coop,
    "bomd": Bomd,
    "bomd-paper": BomdPaper,
    # beyond them
    "bomd-plus": BomdPlus,
    "asl": Asl,
    "auc-margin": AucMargin,
    "hlc": Hlc,
    "balancemix": BalanceMix,
    "li-transition": LiTransition,
    "cleanlab": Cleanlab,
    "small-loss": SmallLoss,
}
