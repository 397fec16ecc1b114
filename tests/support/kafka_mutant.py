"""The carillon command with one guard of the Kafka door switched off: `python -m tests.support.kafka_mutant NAME …`."""

import sys
from collections.abc import Callable

from carillon import cli
from carillon.doors.kafka.wire import Record
from carillon.system import new_id
from tests.support.mutant import vars_of


def no_name_for_a_place() -> None:
    vars_of(Record, place=property(lambda _: new_id()))


MUTANTS: dict[str, Callable[[], None]] = {mutant.__name__: mutant for mutant in (no_name_for_a_place,)}

if __name__ == "__main__":
    MUTANTS[sys.argv.pop(1)]()
    cli.main()
