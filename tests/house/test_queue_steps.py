"""Every step over a list queue is one script: there is no second command before which a crash could come."""

import ast
from collections.abc import Iterator

import pytest

from tests.support.sources import ROOT

SOURCE = ROOT / "src" / "carillon"
MODULES = [
    *sorted((SOURCE / "ledger" / "redis").glob("lists*.py")),
    *(SOURCE / "ledger" / name for name in ("redis/scripts.py", "jobs.py")),
    SOURCE / "queues.py",
    SOURCE / "compose" / "queues.py",
]
WRITES = {
    *(
        "lpush",
        "rpush",
        "lpop",
        "rpop",
        "lrem",
        "ltrim",
        "lset",
        "linsert",
        "lmove",
        "rpoplpush",
        "brpoplpush",
        "blpop",
    ),
    *(
        "zadd",
        "zrem",
        "zincrby",
        "zpopmin",
        "zremrangebyscore",
        "zremrangebyrank",
        "setnx",
        "setex",
        "psetex",
        "getdel",
    ),
    *("delete", "unlink", "expire", "pexpire", "persist", "incr", "decr", "hset", "hdel", "rename", "copy"),
    *("pipeline", "transaction", "execute_command", "multi"),
}


def steps_past_scripts(tree: ast.AST) -> Iterator[int]:
    for node in ast.walk(tree):
        match node:
            case ast.Call(func=ast.Attribute(attr=name)) if name in WRITES:
                yield node.lineno
            # An event is set without saying to what.
            case ast.Call(func=ast.Attribute(attr="set"), args=[_, _, *_]):
                yield node.lineno
            case ast.Call(func=ast.Attribute(attr="blmove"), args=[source, target, _, *ends]):
                onto_itself = ast.dump(source) == ast.dump(target) and len({ast.dump(end) for end in ends}) == 1
                if not onto_itself:
                    yield node.lineno
            case _:
                pass


@pytest.mark.req("S3-33")
def test_nothing_but_scripts_writes_to_a_queue() -> None:
    assert len(MODULES) >= 6
    assert all(path.is_file() for path in MODULES)
    found = [
        f"{path.name}:{line}" for path in MODULES for line in steps_past_scripts(ast.parse(path.read_text(), str(path)))
    ]
    assert not found


@pytest.mark.parametrize(
    "source",
    [
        "redis.lpush(q, m)",
        "redis.pipeline(transaction=False)",
        "redis.set(key, token, nx=True)",
        "redis.blmove(q, p, 1, 'RIGHT', 'LEFT')",
        "redis.blmove(q, q, 1, 'RIGHT', 'LEFT')",
    ],
)
def test_a_step_past_the_scripts_is_seen(source: str) -> None:
    assert list(steps_past_scripts(ast.parse(source))) == [1]


def test_a_wait_that_moves_nothing_is_none() -> None:
    assert list(steps_past_scripts(ast.parse("redis.blmove(q, q, 1, 'RIGHT', 'RIGHT'); event.set()"))) == []


@pytest.mark.req("S3-33")
def test_every_script_is_run_and_every_run_has_its_script() -> None:
    scripts = {path.stem.removeprefix("lists_") for path in (SOURCE / "ledger" / "redis").glob("lists_*.lua")} - {
        "rules"
    }
    ran = {
        str(node.args[0].value)
        for path in MODULES
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr == "run"
        and node.args
        and isinstance(node.args[0], ast.Constant)
    }
    assert ran == scripts
