"""Measure the product against its peers, interleaved in one run."""

import argparse

from benchmarks import files, kernels, loss, scan, stage, step

SUBJECTS = {
    'loss': (loss, 'time and memory of the objectives'),
    'stage': (stage, 'up-sampling, loss, accuracy and backward of a head'),
    'step': (step, 'a whole training step, with and without fused stages'),
    'kernels': (kernels, 'registers, launches and bytes of the GPU kernels'),
    'scan': (scan, 'time of the label scan'),
    'files': (files, 'what grows with the number of label files'),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    subjects = parser.add_subparsers(dest='subject', required=True)
    for name, (module, text) in SUBJECTS.items():
        module.add_arguments(subjects.add_parser(name, help=text))
    args = parser.parse_args()
    SUBJECTS[args.subject][0].run(args)


if __name__ == '__main__':
    main()
