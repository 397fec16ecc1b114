"""How the command line writes numbers of things."""


def counted(number: int, thing: str, several: str | None = None) -> str:
    """`1 dead letter`, `2,600 dead letters`; `several` for a plural that does not end with s."""
    return f"{number:,} {thing if number == 1 else several or f'{thing}s'}"
