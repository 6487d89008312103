"""One colour for each objective, told apart by colour-blind readers too."""

# Okabe and Ito's, for the objectives of tools/train.py.
FIXED = {
    'margin': '#D55E00',
    'ce': '#000000',
    'wce': '#56B4E9',
    'focal': '#E69F00',
    'lovasz': '#0072B2',
    'dice': '#009E73',
    'tversky': '#CC79A7',
}
# Tol's, for any other.
SPARE = ('#882255', '#999933', '#332288', '#44AA99', '#777777')


def colours_of(objectives: list[str]) -> dict[str, str]:
    """The colour of each; one with settings, margin:tau=20, has its own."""
    others = [name for name in objectives if name not in FIXED]
    spare = {name: SPARE[i % len(SPARE)] for i, name in enumerate(others)}
    return {name: FIXED.get(name) or spare[name] for name in objectives}
