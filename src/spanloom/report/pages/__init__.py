"""Pages for a browser.

html       templates, escaping, and the content security policy
plots      the plots of the report, as SVG
report     the report: `report.html`
documents  documents as a page
texts      texts and tables with links, for a service
"""
