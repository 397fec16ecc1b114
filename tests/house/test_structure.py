"""The shape of the package: folders, files, imports and class names that one person can hold in mind."""

from pathlib import Path

from scripts.house_rules import (
    Module,
    crowded_folders,
    folder_sizes,
    fragments,
    import_graph,
    knots,
    long_files,
    names_used_twice,
    read_modules,
)
from tests.support.sources import package_modules

TWICE_ON_PURPOSE = {
    "Settings": "every provider's module names the struct of its options `Settings`; the loader finds it by that name",
    "Migration": "Django finds a migration by this name",
    "Accepted": "the client's own shape of the same answer: the client imports nothing of the engine",
    "BatchAnswer": "the client's own shape of the same answer: the client imports nothing of the engine",
    "Cancelled": "the client's own shape of the same answer: the client imports nothing of the engine",
    "Notification": "the client's own shape of the same answer: the client imports nothing of the engine",
    "Route": "the client's own shape of the same answer: the client imports nothing of the engine",
}


def test_no_folder_holds_more_than_40_python_files() -> None:
    assert not crowded_folders(package_modules())


def test_a_file_has_60_lines_or_two_importers() -> None:
    found = fragments(package_modules())
    assert not found, "merge it into the file that a newcomer would open"


def test_no_modules_import_each_other_in_a_circle() -> None:
    found = knots(import_graph(package_modules()))
    assert not found


def test_a_class_name_stands_for_one_thing() -> None:
    found = names_used_twice(package_modules())
    assert not TWICE_ON_PURPOSE.keys() - found.keys(), "no longer used twice: take it off the list"
    assert not found.keys() - TWICE_ON_PURPOSE.keys(), found


# Controls: each rule is fed a small tree that breaks it.


def house(root: Path, files: dict[str, str]) -> dict[str, Module]:
    for name, text in files.items():
        path = root / "src" / "carillon" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return read_modules(root)


def test_control_a_crowded_folder_is_seen(tmp_path: Path) -> None:
    modules = house(tmp_path, {f"room/file_{number}.py": "" for number in range(41)})
    assert crowded_folders(modules) == {"src/carillon/room": 41}
    assert folder_sizes(modules) == {"src/carillon/room": 41}


def test_control_a_long_file_is_seen(tmp_path: Path) -> None:
    modules = house(tmp_path, {"long.py": "x = 1\n" * 401, "short.py": "x = 1\n" * 400})
    assert long_files(modules) == ["src/carillon/long.py"]


def test_control_a_fragment_is_seen(tmp_path: Path) -> None:
    late = "def load():\n    from carillon.room import late\n    import_module('carillon.room.named')\n"
    modules = house(
        tmp_path,
        {
            "room/__init__.py": "",
            "room/lonely.py": "",
            "room/late.py": "",
            "room/named.py": "",
            "room/one.py": "from carillon.room.lonely import x\n" + late + "\n" * 60,
            "room/two.py": late + "\n" * 60,
            "providers/small.py": "",
        },
    )
    assert fragments(modules) == {"src/carillon/room/lonely.py": ["carillon.room.one"]}


def test_control_a_circle_is_seen_through_types_and_functions(tmp_path: Path) -> None:
    modules = house(
        tmp_path,
        {
            "room/__init__.py": "",
            "room/a.py": "if TYPE_CHECKING:\n    from carillon.room.b import B\n",
            "room/b.py": "def load():\n    from carillon.room import c\n",
            "room/c.py": "from .a import A\n",
            "room/d.py": "import carillon.room.a\n",
        },
    )
    assert knots(import_graph(modules)) == [["carillon.room.a", "carillon.room.b", "carillon.room.c"]]


def test_control_a_class_name_used_twice_is_seen(tmp_path: Path) -> None:
    modules = house(
        tmp_path, {"a.py": "class One: ...\nclass _Own: ...\n", "b.py": "class One: ...\nclass _Own: ...\n"}
    )
    assert names_used_twice(modules) == {"One": ["src/carillon/a.py:1", "src/carillon/b.py:1"]}
