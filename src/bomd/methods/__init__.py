"""Room 5: one file per way to learn from noisy labels. To add one, add its line here."""

from __future__ import annotations

from bomd.methods.registry import Registry

METHODS = Registry(
    {
        # the paper's tables
        "bce": "bce:Bce",
        "ls": "ls:Ls",
        "gls": "gls:Gls",
        "ols": "ols:Ols",
        "ols-sample": "ols_sample:OlsSample",
        "elr": "elr:Elr",
        "nvum": "nvum:Nvum",
        "ncr": "ncr:Ncr",
        "npc": "npc:Npc",
        "dividemix": "dividemix:DivideMix",
        "fine": "fine:Fine",
        "co-teaching": "co_teaching:CoTeaching",
        "decoupling": "decoupling:Decoupling",
        "mentornet": "mentornet:MentorNet",
        "f-correction": "f_correction:FCorrection",
        "xue": "xue:Xue",
        "can": "can:Can",
        "hermoza": "hermoza:Hermoza",
        "coop": "coop:Coop",
        "bomd": "bomd:Bomd",
        "bomd-paper": "bomd:BomdPaper",
        # beyond them
        "bomd-plus": "bomd_plus:BomdPlus",
        "asl": "asl:Asl",
        "auc-margin": "auc_margin:AucMargin",
        "hlc": "hlc:Hlc",
        "balancemix": "balancemix:BalanceMix",
        "li-transition": "li_transition:LiTransition",
        "cleanlab": "cleanlab:Cleanlab",
        "small-loss": "small_loss:SmallLoss",
    }
)
