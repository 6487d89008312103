"""The page in a real browser, which is cut off from any network."""

import html
import json
import re
import shutil
import subprocess

import pytest

from mmseg_margin.comparison.report import write_report
from tests.comparison.invented import (
    comparison_of,
    write_comparison,
    write_samples,
)

NAMES = ('chromium', 'chromium-browser', 'google-chrome')
BROWSER = next(filter(None, map(shutil.which, NAMES)), None)
pytestmark = pytest.mark.skipif(
    BROWSER is None, reason=f'needs one of {", ".join(NAMES)} on the PATH'
)
FLAGS = (
    '--headless',
    '--dump-dom',
    '--no-sandbox',
    '--disable-gpu',
    '--disable-quic',
    '--no-first-run',
    '--disable-background-networking',
    '--disable-component-update',
    '--disable-sync',
    '--enable-logging=stderr',
    '--hide-scrollbars',
    '--host-resolver-rules=MAP * ~NOTFOUND',
)
WIDTHS = {'desktop': 1280, 'phone': 390}
# The page in frames of both widths: a window cannot be as narrow as a phone.
PROBE = """<!DOCTYPE html><body><script>
function probe(frame) {
  const page = frame.contentDocument, root = page.documentElement;
  const images = [...page.images];
  return {
    overflow: root.scrollWidth - root.clientWidth,
    images: images.length,
    broken: images.filter(i => !i.complete || !i.naturalWidth).length,
    narrowest: Math.min(...images.map(i => i.clientWidth)),
    tables: page.querySelectorAll('.scroll > table').length,
    links: [...page.links].map(a => !!page.querySelector(a.hash)),
    summary: page.querySelector('.summary').innerText,
    clipped: [...page.querySelectorAll('p, h1, h2')]
      .filter(e => e.scrollWidth > e.clientWidth).map(e => e.innerText),
  };
}
addEventListener('load', () => {
  const found = {};
  for (const frame of document.querySelectorAll('iframe'))
    found[frame.name] = probe(frame);
  document.body.innerText = 'FOUND' + JSON.stringify(found) + 'END';
});
</script>%s"""


@pytest.fixture(scope='module')
def page(tmp_path_factory):
    """An objective and classes with long names, and a run that is missing."""
    out = tmp_path_factory.mktemp('comparison')
    long = 'margin:log_base=e,class_weight=sqrt,pos_weight=num_classes'
    classes = ['$x$\x1b[2J', '</td>', '"a" b', 'W' * 80, '<script>alert(1)']
    names = ('margin', 'ce', 'lovasz', long)
    miou = {name: [60 + i, 62 + i] for i, name in enumerate(names)}
    miou['lovasz'][1] = None
    comparison = comparison_of(miou, classes=classes)
    write_comparison(out, comparison)
    return write_report(out, write_samples(out, comparison, n=2))


def browse(address, profile):
    """The page as the browser has it, and what it says on its console."""
    done = subprocess.run(
        [BROWSER, *FLAGS, f'--user-data-dir={profile}', address],
        capture_output=True,
        text=True,
        timeout=180,
        check=True,
    )
    console = re.findall(r'.*:CONSOLE.*', done.stderr)
    return done.stdout, console


def test_no_complaint_on_the_console(page, tmp_path):
    dom, console = browse(page.as_uri(), tmp_path / 'profile')
    assert console == []
    assert '&lt;script&gt;alert(1)' in dom
    assert '<script' not in dom
    assert '\x1b' not in dom


def test_a_page_that_loads_something_would_complain(page, tmp_path):
    other = tmp_path / 'other.html'
    image = '<img src="http://example.org/a.png"><h1>'
    other.write_text(page.read_text('utf-8').replace('<h1>', image), 'utf-8')
    _, console = browse(other.as_uri(), tmp_path / 'profile')
    assert len(console) == 1
    assert 'Content Security Policy' in console[0]


def test_it_fits_desktop_and_phone(page, tmp_path):
    source = html.escape(page.read_text('utf-8'))
    frames = [
        f'<iframe name="{name}" width="{width}" height="900" '
        f'srcdoc="{source}"></iframe>'
        for name, width in WIDTHS.items()
    ]
    probe = tmp_path / 'probe.html'
    probe.write_text(PROBE % '\n'.join(frames), 'utf-8')
    dom, console = browse(probe.as_uri(), tmp_path / 'profile')
    assert console == []
    found = json.loads(re.search('FOUND(.*)END', dom, re.DOTALL)[1])
    assert set(found) == set(WIDTHS)
    for name, seen in found.items():
        assert seen['overflow'] <= 0, name
        assert seen['clipped'] == [], name
        assert (seen['images'], seen['broken']) == (2, 0)
        assert seen['narrowest'] > 250
        assert seen['tables'] == 4
        assert seen['links'] == [True] * 6
        assert 'margin' in seen['summary']
