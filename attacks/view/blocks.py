"""Which block of the uploads an attack reads: that of the items, or that of the flat parameters.

The blocks of an upload lie one below the other in one table; which rows are items is public.
"""

from attacks.view.knowledge import Knowledge
from secure_fedrec.wire import View


def item_view(view: View) -> View | None:
    """The view of the rows that are items; None where no rows are.

    Raises:
        UnstatedFactError: rows are items, and nobody states how many there are.
    """
    if "n_items" not in view.public and not Knowledge.of(view).item_rows:
        return None
    _ = view.public["n_items"]  # known of rows that are items, or unknown
    # A transcript of one table says no more than how many items it has.
    return view if "blocks" not in view.public else view.of_block("items")


def flat_view(view: View) -> View | None:
    """The view of the flat parameters; None where uploads have none."""
    return view if "blocks" not in view.public else view.of_block("flat")
