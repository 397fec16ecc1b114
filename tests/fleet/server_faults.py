"""Faults of servers: alone they are killed and come back, in their highly available form others take over."""

import time
from collections.abc import Callable

from tests.fleet.topology import WholeServers
from tests.fleet.world import NotStruckError, World


def kill_server(name: str) -> Callable[[World], None]:
    def run(world: World) -> None:
        server = getattr(world.servers, name)
        with world.striking():
            server.kill()
            time.sleep(2)
            server.start()
        world.until_ready()

    return run


def broker_down(world: World) -> None:
    with world.striking():
        world.servers.kafka.tell("down", 2)
        try:
            time.sleep(6)
        finally:
            world.servers.kafka.tell("up", 2)


# --- servers in their highly available form --------------------------------------------------------------------------


# Each strikes until its servers are whole again: a standby that joins holds commits up, too.


def _whole(world: World) -> WholeServers:
    assert isinstance(world.servers, WholeServers)
    return world.servers


def switch_postgres(world: World) -> None:
    postgres = _whole(world).postgres
    with world.striking():
        try:
            postgres.switch_over()
        except (LookupError, RuntimeError) as error:
            postgres.heal()
            raise NotStruckError(str(error)) from error
        postgres.until_led()
        postgres.heal()
    world.until_ready()


def kill_postgres(world: World) -> None:
    postgres = _whole(world).postgres
    with world.striking():
        postgres.kill_primary()
        postgres.until_led()
        postgres.heal()
    world.until_ready()


def kill_standby(world: World) -> None:
    postgres = _whole(world).postgres
    with world.striking():
        postgres.kill_standby()
        time.sleep(3)
        postgres.heal()
    world.until_ready()


def stop_etcd(world: World) -> None:
    """The primary can no longer renew its right to lead, and steps down."""
    servers = _whole(world)
    with world.striking():
        servers.postgres.etcd.pause()
        try:
            time.sleep(7)
        finally:
            servers.postgres.etcd.resume()
        servers.postgres.until_led()
        servers.postgres.heal()
    world.until_ready()


def kill_redis(world: World) -> None:
    fleet = _whole(world).redis
    with world.striking():
        dead = fleet.kill_primary()
        fleet.until_led_by_other(dead)
        fleet.heal()
    world.until_ready()


def stop_redis(world: World) -> None:
    """A primary that hangs is replaced; when it goes on it finds that it is a replica."""
    fleet = _whole(world).redis
    with world.striking():
        stuck = fleet.primary()
        stuck.pause()
        try:
            fleet.until_led_by_other(stuck)
            time.sleep(2)
        finally:
            stuck.resume()
        fleet.heal()
    world.until_ready()


def kill_rabbit(world: World) -> None:
    fleet = _whole(world).rabbit
    with world.striking():
        fleet.kill(fleet.leader_of("push.queue"))
        time.sleep(2)
        fleet.heal()
    world.until_ready()


def lose_quorum(world: World) -> None:
    fleet = _whole(world).rabbit
    with world.striking():
        fleet.kill(*fleet.nodes[:2])
        time.sleep(5)
        fleet.heal()
    world.until_ready()


def stop_rabbit(world: World) -> None:
    fleet = _whole(world).rabbit
    with world.striking():
        node = fleet.leader_of("push.queue")
        node.pause()
        try:
            time.sleep(12)
        finally:
            node.resume()
        fleet.heal()
    world.until_ready()
