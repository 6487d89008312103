"""The look of the page, on a screen, a phone and paper."""

STYLE = """
:root { color-scheme: light; }
* { box-sizing: border-box; }
body {
  margin: 0 auto; padding: 1.5rem; max-width: 72rem;
  font: 1rem/1.5 system-ui, sans-serif; color: #1b1b1b; background: #fff;
}
h1 { font-size: 1.6rem; line-height: 1.25; margin: 0; }
.subtitle { color: #444; margin: .25rem 0 1rem; max-width: none; }
.subtitle, .summary, figcaption, pre { overflow-wrap: anywhere; }
h2 {
  font-size: 1.25rem; margin: 2.5rem 0 .75rem; padding-top: .75rem;
  border-top: 1px solid #ccc;
}
p { max-width: 48rem; }
.summary, .warning { max-width: none; padding: .8rem 1rem; margin: .75rem 0; }
.summary {
  font-size: 1.1rem; background: #eef4fa; border-left: .3rem solid #0072b2;
}
.warning { background: #fdf3e1; border-left: .3rem solid #e69f00; }
nav ul {
  list-style: none; margin: 1rem 0 0; padding: 0;
  display: flex; flex-wrap: wrap; gap: .25rem 1.25rem;
}
a { color: #005a9c; }
.caption, figcaption { color: #444; font-size: .9rem; margin: .5rem 0; }
.scroll { overflow-x: auto; margin-bottom: 1.5rem; }
table { border-collapse: collapse; font-size: .9rem; }
th, td {
  padding: .3rem .7rem; text-align: left;
  border-bottom: 1px solid #ddd; font-variant-numeric: tabular-nums;
}
td { overflow-wrap: anywhere; }
.numeric th, .numeric td { text-align: right; }
.numeric td { white-space: nowrap; }
thead th {
  border-bottom: 2px solid #666; vertical-align: bottom;
  min-width: 5rem; max-width: 11rem;
}
th { font-weight: 600; }
.numeric th:first-child {
  text-align: left; position: sticky; left: 0; background: #fff;
}
tbody th { font-weight: 400; min-width: 6rem; max-width: 16rem; }
figure { margin: 1rem 0 1.5rem; }
img { display: block; width: 100%; max-width: 46rem; height: auto; }
.wide img { max-width: none; }
.wide .scroll { margin: 0; }
.gallery {
  display: grid; gap: 0 1rem;
  grid-template-columns: repeat(auto-fill, minmax(min(100%, 20rem), 1fr));
}
pre {
  padding: .8rem 1rem; background: #f5f5f5; white-space: pre-wrap;
  font-size: .85rem;
}
@media screen and (max-width: 40rem) {
  body { padding: 1rem; }
  th, td { padding: .3rem .45rem; }
  tbody th { max-width: 8rem; }
  .wide img { width: 50rem; }
}
@media print {
  body { max-width: none; padding: 0; font-size: 9.5pt; }
  nav { display: none; }
  h2, .caption { break-after: avoid; }
  figure, tr, p { break-inside: avoid; }
  img { max-width: 12cm; }
  table { font-size: 8pt; }
  th, td { padding: .15rem .35rem; }
  .scroll { overflow: visible; }
  .gallery { grid-template-columns: repeat(3, 1fr); }
}
@page { margin: 15mm; }
"""
