"""The picture of a plan that a notebook shows by itself."""

from __future__ import annotations

from dataclasses import fields
from html import escape

from jigsaw_opt.problem.instance import Instance
from jigsaw_opt.problem.plan import Plan
from jigsaw_opt.views import lanes
from jigsaw_opt.views.explained import explained_picture
from jigsaw_opt.views.html import timeline_html

__all__ = ["NotebookPicture", "picture"]


class NotebookPicture(lanes.Picture):
    """A picture that a notebook shows as its timeline page."""

    __slots__ = ()

    def _repr_html_(self) -> str:
        """Return the timeline page in a frame; scripts in it reach nothing of the notebook."""
        page = escape(timeline_html(explained_picture(self)))
        return f'<iframe title="timeline" sandbox="allow-scripts" width="100%" height="480" srcdoc="{page}"></iframe>'


def picture(instance: Instance, plan: Plan) -> NotebookPicture:
    """Return the lanes of a correct plan, as `jigsaw_opt.views.lanes.picture` does, for a notebook to show.

    Parameters
    ----------
    instance
        The instance.
    plan
        A plan that is correct for it.
    """
    drawn = lanes.picture(instance, plan)
    return NotebookPicture(**{each.name: getattr(drawn, each.name) for each in fields(drawn)})
