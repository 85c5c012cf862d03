"""Pages that a person reads in a browser.

html       templates, escaping, what a browser may do with them
plots      the plots of the report, as SVG
report     the report: `report.html`
documents  documents as a page
texts      texts and tables with links, for what a service shows
"""
