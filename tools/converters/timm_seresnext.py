"""Convert timm's seresnext50_32x4d weights to the SEResNeXt backbone.

timm itself is not needed: SOURCE is the downloaded .pth or .bin file.
"""

import argparse
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from mmseg_margin.errors import SettingError
from mmseg_margin.tooling.cli import report_errors

# timm's names of the tensors, and the parts of them that differ here.
CLASSIFIER = re.compile(r'fc\.(weight|bias)')
BACKBONE = re.compile(
    r'(conv1|bn1'
    r'|layer[1-4]\.\d+\.(conv[1-3]|bn[1-3]|downsample\.[01]|se\.fc[12]))'
    r'\.(weight|bias|running_mean|running_var|num_batches_tracked)'
)
RENAMED = (('.se.fc1.', '.se.conv1.conv.'), ('.se.fc2.', '.se.conv2.conv.'))


def convert_timm_seresnext(state: Mapping[str, Any]) -> dict[str, Any]:
    """Weights of timm's SE-ResNeXt under the names of ``SEResNeXt``.

    The classifier is dropped; the tensors are passed on unchanged.
    """
    converted = {}
    for name, tensor in state.items():
        if CLASSIFIER.fullmatch(name):
            continue
        if not BACKBONE.fullmatch(name):
            raise SettingError(
                f"'{name}' is not a tensor of timm's seresnext50_32x4d: "
                'pass the state dict of that model.'
            )
        for timm_name, own_name in RENAMED:
            name = name.replace(timm_name, own_name)
        converted[name] = tensor
    return converted


@report_errors
def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument('source', type=Path, metavar='SOURCE')
    parser.add_argument('target', type=Path, metavar='TARGET')
    args = parser.parse_args(argv)
    import torch

    state = torch.load(args.source, map_location='cpu', weights_only=True)
    converted = convert_timm_seresnext(state.get('state_dict', state))
    args.target.parent.mkdir(parents=True, exist_ok=True)
    torch.save({'state_dict': converted}, args.target)
    print(f'{len(converted)} tensors in {args.target}.')


if __name__ == '__main__':
    main()
