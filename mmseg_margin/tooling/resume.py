"""``--resume``: from the newest checkpoint that is whole.

mmengine writes a checkpoint in place and then its name into
``last_checkpoint``, so a training that is killed can leave either of them
incomplete.
"""

import re
from pathlib import Path
from zipfile import is_zipfile

from mmengine.config import Config
from mmengine.dist import is_main_process
from mmengine.logging import print_log

CHECKPOINT = re.compile(r'(iter|epoch)_\d+\.pth')


def resume_training(cfg: Config) -> None:
    """Go on in the work dir, or begin if there is nothing to go on from.

    As upstream has it, a ``load_from`` of the config is resumed instead.
    """
    if not cfg.get('load_from'):
        cfg.load_from = newest_whole_checkpoint(cfg.work_dir)
        cfg.resume = cfg.load_from is not None


def newest_whole_checkpoint(work_dir: str) -> str | None:
    """The last checkpoint that was written to its end, if there is one."""
    for path in _checkpoints(Path(work_dir)):
        # A cut file has no zip directory, which is written last.
        if is_zipfile(path):
            return str(path)
        if is_main_process():
            print_log(
                f'{path} is not whole, perhaps because its writing was '
                'interrupted, so an earlier checkpoint is looked for.'
            )
    return None


def _checkpoints(work_dir: Path) -> list[Path]:
    """What ``last_checkpoint`` names, then all others from new to old."""
    record = work_dir / 'last_checkpoint'
    text = record.read_text('utf-8', 'replace') if record.is_file() else ''
    named = [Path(text.strip())] if text.strip() else []
    folders = {work_dir, *(path.parent for path in named)}
    found = (
        path
        for folder in folders
        for path in folder.glob('*.pth')
        if CHECKPOINT.fullmatch(path.name) and path not in named
    )
    newest_first = sorted(found, key=_time_of_writing, reverse=True)
    return [path for path in named + newest_first if path.is_file()]


def _time_of_writing(path: Path) -> float:
    return path.stat().st_mtime
