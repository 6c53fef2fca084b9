"""What the page says in, its HTML out. The one user of jinja2, which escapes every value."""

import base64

from jinja2 import Environment, PackageLoader, StrictUndefined

from artifact import __version__
from artifact.plots.inline import Picture
from artifact.report.contents import Contents


def render(contents: Contents) -> str:
    """Return the page: one file without scripts that loads nothing, and whose policy forbids it to."""
    environment = Environment(
        loader=PackageLoader("artifact.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters["data_uri"] = _data_uri
    return environment.get_template("page.html").render(it=contents, version=__version__)


def _data_uri(picture: Picture) -> str:
    return f"data:image/svg+xml;base64,{base64.b64encode(picture.svg).decode('ascii')}"
