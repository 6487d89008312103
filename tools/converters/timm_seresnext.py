"""Convert timm's seresnext50_32x4d weights to the SEResNeXt backbone.

timm itself is not needed: SOURCE is the downloaded .pth or .bin file.
"""

import argparse
from pathlib import Path

from mmseg_margin.tooling.cli import report_errors


@report_errors
def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument('source', type=Path, metavar='SOURCE')
    parser.add_argument('target', type=Path, metavar='TARGET')
    args = parser.parse_args(argv)
    import torch

    from mmseg_margin.models import convert_timm_seresnext

    state = torch.load(args.source, map_location='cpu', weights_only=True)
    converted = convert_timm_seresnext(state.get('state_dict', state))
    args.target.parent.mkdir(parents=True, exist_ok=True)
    torch.save({'state_dict': converted}, args.target)
    print(f'{len(converted)} tensors in {args.target}.')


if __name__ == '__main__':
    main()
