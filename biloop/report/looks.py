"""How the schemes look in every figure: colours of Okabe and Ito, and a marker each."""

DPI = 90
LOOKS = {  # a marker each, so that no colour is needed
    "No-loop AID": ("#d55e00", "s"),
    "N-loop AID": ("#0072b2", "^"),
    "Q-loop AID": ("#cc79a7", "v"),
    "N-Q-loop AID": ("#000000", "o"),
    "No-loop ITD": ("#e69f00", "X"),
    "N-N-loop ITD": ("#009e73", "D"),
    "BA": ("#888888", "1"),
    "AID-BiO": ("#888888", "+"),
    "ITD-BiO": ("#888888", "x"),
}
