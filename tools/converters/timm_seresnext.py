"""Convert timm's seresnext50_32x4d weights to the SEResNeXt backbone.

timm itself is not needed: SOURCE is the downloaded .pth or .bin file.
"""

import argparse
from pathlib import Path
from pickle import UnpicklingError

import torch

from mmseg_margin.atomic_write import atomic_write
from mmseg_margin.errors import MissingFileError, SettingError
from mmseg_margin.models import convert_timm_seresnext
from mmseg_margin.tooling.cli import report_errors


def read_weights(path: Path) -> dict:
    if not path.is_file():
        raise MissingFileError(f"'{path}' does not exist.")
    try:
        state = torch.load(path, map_location='cpu', weights_only=True)
    except (EOFError, RuntimeError, UnpicklingError) as error:
        raise SettingError(
            f"'{path}' cannot be read as PyTorch weights: download the "
            "model's .pth or .bin file, not .safetensors."
        ) from error
    return state.get('state_dict', state)


@report_errors
def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument('source', type=Path, metavar='SOURCE')
    parser.add_argument('target', type=Path, metavar='TARGET')
    args = parser.parse_args(argv)
    converted = convert_timm_seresnext(read_weights(args.source))
    args.target.parent.mkdir(parents=True, exist_ok=True)
    with atomic_write(args.target) as draft:
        torch.save({'state_dict': converted}, draft)
    print(f'{len(converted)} tensors in {args.target}.')


if __name__ == '__main__':
    main()
