"""Measure time and memory beside mmseg's own losses and data loading."""

import argparse

from benchmarks import files, kernels, losses, scan, step

from mmseg_margin.tooling.cli import report_errors

SUBJECTS = {
    'loss': (losses.LOSS, 'time and memory of the objectives'),
    'stage': (
        losses.STAGE,
        'up-sampling, loss, accuracy and backward of a head',
    ),
    'step': (step, 'a training step with and without fused loss stages'),
    'kernels': (kernels, 'registers, launches and bytes of the GPU kernels'),
    'scan': (scan, 'time of the label scan'),
    'files': (files, 'costs that grow with the number of label files'),
}


@report_errors
def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    subjects = parser.add_subparsers(dest='subject', required=True)
    for name, (subject, text) in SUBJECTS.items():
        subject.add_arguments(subjects.add_parser(name, help=text))
    args = parser.parse_args(argv)
    SUBJECTS[args.subject][0].run(args)


if __name__ == '__main__':
    main()
