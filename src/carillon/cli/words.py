"""How the command line writes numbers of things."""


def counted(number: int, thing: str, several: str | None = None) -> str:
    """`1 dead letter`, `2,600 dead letters`; `several` for a plural that does not end with s."""
    return f"{number:,} {thing if number == 1 else several or f'{thing}s'}"


VERDICTS = {
    "bury": "given up",
    "retry": "tried again later",
    "fail_over": "failed over",
    "defer": "put off",
    "skip": "skipped",
    "finish": "delivered",
}
"""What a verdict means to a person, as the console says it."""
