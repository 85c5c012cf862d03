"""The files beside the data of an export: the card, and Croissant metadata if mlcroissant is installed.

In: a dataset root, its manifest's `content`, its family. Out: file name → a function that makes it from the export.
"""

from collections.abc import Callable
from functools import partial
from pathlib import Path

from spanloom.dataset.export.form import Form
from spanloom.dataset.export.parquet import Beside, Exported
from spanloom.dataset.family import DatasetFamily
from spanloom.dataset.manifest import Content
from spanloom.dataset.root.layout import CARD_NAME
from spanloom.errors import DatasetError
from spanloom.report.card import export_card
from spanloom.report.croissant import CROISSANT_JSON, croissant_json, wants_croissant
from spanloom.report.views import counts_by_language


def export_views(
    root: Path, content: Content, family: DatasetFamily, form: Form, *, croissant: bool | None = None
) -> Beside:
    """The files beside an export. `croissant` None: of Parquet, if mlcroissant is installed.

    Raises DatasetError if it is requested and not installed, or not of Parquet, before anything is written.
    """
    description, by_language = family.describe(content), counts_by_language(root, content, family)
    beside: dict[str, Callable[[Exported], bytes]] = {CARD_NAME: partial(export_card, description, by_language)}
    if form.is_disk_folder:
        if croissant:
            raise DatasetError("Croissant metadata describes Parquet, and this export has none", remedy="leave it out")
    elif wants_croissant(croissant):
        beside[CROISSANT_JSON] = partial(croissant_json, description, by_language)
    return beside
