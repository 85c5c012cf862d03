"""What people see: while something runs, when it is done, and when they look at what was built.

progress          live bars on a terminal, plain lines elsewhere, nothing when silent
summary           a dataset and its validation as a short table
text              content made safe to look at
facts             everything a report says, as plain values: `report.json`
plots             the report's plots, as SVG
report_page       the report as a page: `report.html`
card              the dataset card: `README.md`
views             these three files beside a dataset
stats             counts by group as table, CSV, JSON
conversation      a document as the views are given it
terminal          documents on a terminal
documents_page    documents as a page
html              pages: templates, escaping, what a browser may do with them
"""
