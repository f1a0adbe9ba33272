"""The README for the package index, where links into the repository have to be absolute.

Where it lies is known when a release is built: GITHUB_REPOSITORY and GITHUB_REF_NAME say it.
Without them links stay as they are.
"""

import os
import re
from pathlib import Path

from hatchling.metadata.plugin.interface import MetadataHookInterface

RELATIVE = re.compile(r"(!?\[[^\]]*\]\()(?!https?:|#|mailto:)([^)\s]+)\)")


def with_absolute_links(text: str, repository: str, ref: str) -> str:
    """Pictures as files, pages as pages of the repository at a tag."""

    def absolute(found: re.Match) -> str:
        kind = "raw" if found[1].startswith("!") else "blob"
        return f"{found[1]}https://github.com/{repository}/{kind}/{ref}/{found[2]})"

    return RELATIVE.sub(absolute, text)


class CustomMetadataHook(MetadataHookInterface):
    """Fills in `readme`."""

    def update(self, metadata: dict) -> None:
        """Read README.md, which lies beside this file."""
        text = (Path(self.root) / "README.md").read_text(encoding="utf-8")
        repository, ref = (os.environ.get(f"GITHUB_{name}") for name in ("REPOSITORY", "REF_NAME"))
        metadata["urls"] = {"Paper": "https://arxiv.org/abs/2205.14224"}
        if repository and ref:
            text = with_absolute_links(text, repository, ref)
            home = f"https://github.com/{repository}"
            metadata["urls"] |= {"Repository": home, "Issues": f"{home}/issues"}
        metadata["readme"] = {"content-type": "text/markdown", "text": text}
