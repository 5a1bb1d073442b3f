"""The colours of every figure."""

# Okabe and Ito's colours, which the colour-blind can tell apart; yellow and black vanish on one background
PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
# The methods that pages speak of most look the same in every figure: their places in the palette
OWN = {"bomd": 0, "bce": 1, "bomd-plus": 2, "nvum": 3}
