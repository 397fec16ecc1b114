"""What zsh is given to complete `carillon`: typer's script, and an answer to the first TAB."""

from importlib import import_module

_FIRST_TAB = """
# zsh reads this file at the first TAB, and would forget that one.
if [[ "$funcstack[1]" = "_%(prog_name)s" ]]; then
  %(complete_func)s "$@"
fi
"""


def answer_the_first_tab() -> None:
    """Add to typer's script where there is one; its place is typer's own affair, so a missing one is no error."""
    try:
        scripts = getattr(import_module("typer._completion_shared"), "_completion_scripts", {})
    except ImportError:
        return
    if "zsh" in scripts and _FIRST_TAB not in scripts["zsh"]:
        scripts["zsh"] += _FIRST_TAB
