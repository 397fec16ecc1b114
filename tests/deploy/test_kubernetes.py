"""The manifests, read as Kubernetes reads them; there is no cluster here to apply them to."""

from typing import Any

import pytest
import yaml

from carillon import __version__
from carillon.config.reading import load
from tests.deploy.dockerfile import stages
from tests.support.docs_facts import commands
from tests.support.sources import ROOT

FOLDER = ROOT / "deploy" / "kubernetes"
DEPLOYMENTS = ("doors", "outbound")


def objects() -> dict[tuple[str, str], Any]:
    listed = yaml.safe_load((FOLDER / "kustomization.yaml").read_text())["resources"]
    assert sorted(listed) == sorted(file.name for file in FOLDER.glob("*.yaml") if file.name != "kustomization.yaml")
    found = [each for name in listed for each in yaml.safe_load_all((FOLDER / name).read_text())]
    return {(each["kind"], each["metadata"]["name"]): each for each in found}


def pod(name: str) -> Any:
    return objects()["Deployment", f"carillon-{name}"]["spec"]["template"]


def container(name: str) -> Any:
    (found,) = pod(name)["spec"]["containers"]
    return found


@pytest.mark.parametrize("name", DEPLOYMENTS)
def test_probes_ask_what_we_answer(name: str) -> None:
    asked = {probe: container(name)[f"{probe}Probe"]["httpGet"] for probe in ("startup", "readiness", "liveness")}
    assert {probe: get["path"] for probe, get in asked.items()} == {
        "startup": "/readyz",
        "readiness": "/readyz",
        "liveness": "/healthz",
    }
    (port,) = container(name)["ports"]
    assert {get["port"] for get in asked.values()} == {port["name"]}
    exposed = next(step.rest for step in stages(ROOT / "deploy" / "Dockerfile")[-1] if step.word == "EXPOSE")
    assert port["containerPort"] == int(exposed)


@pytest.mark.parametrize("name", DEPLOYMENTS)
def test_a_pod_drains_before_it_is_killed(name: str) -> None:
    word, seconds = container(name)["lifecycle"]["preStop"]["exec"]["command"]
    drain = load("local", environ={}).work.drain_seconds
    assert word == "sleep"
    assert pod(name)["spec"]["terminationGracePeriodSeconds"] >= int(seconds) + drain + 10
    assert objects()["Deployment", f"carillon-{name}"]["spec"]["strategy"]["rollingUpdate"]["maxUnavailable"] == 0


@pytest.mark.parametrize("name", DEPLOYMENTS)
def test_a_pod_can_do_nothing_but_its_work(name: str) -> None:
    whole, own = pod(name)["spec"]["securityContext"], container(name)["securityContext"]
    user = next(step.rest for step in stages(ROOT / "deploy" / "Dockerfile")[-1] if step.word == "USER")
    assert f"{whole['runAsUser']}:{whole['runAsGroup']}" == user
    assert whole["runAsNonRoot"]
    assert whole["seccompProfile"] == {"type": "RuntimeDefault"}
    assert own == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert not pod(name)["spec"]["automountServiceAccountToken"]
    assert container(name)["resources"]["limits"]["memory"]
    mounted = {mount["name"] for mount in container(name)["volumeMounts"]}
    assert mounted == {volume["name"] for volume in pod(name)["spec"]["volumes"]}


@pytest.mark.parametrize("name", DEPLOYMENTS)
def test_selectors_find_their_pods(name: str) -> None:
    everything = objects()
    labels = pod(name)["metadata"]["labels"].items()
    deployment = everything["Deployment", f"carillon-{name}"]["spec"]
    budget = everything["PodDisruptionBudget", f"carillon-{name}"]["spec"]
    assert deployment["selector"]["matchLabels"].items() == labels
    assert budget["selector"]["matchLabels"].items() == labels
    assert deployment["replicas"] > budget["maxUnavailable"]
    if name == "doors":
        service = everything["Service", "carillon"]["spec"]
        assert service["selector"].items() == labels
        assert service["ports"][0]["targetPort"] == container(name)["ports"][0]["name"]


def test_together_they_have_every_role_of_this_version() -> None:
    roles: list[str] = []
    for name in DEPLOYMENTS:
        command, option, words = container(name)["args"]
        assert option in commands()[f"carillon {command}"]
        assert container(name)["image"] == f"carillon:{__version__}"
        roles += words.split(",")
    assert sorted(roles) == ["doors", "outbound", "upkeep"]


def test_settings_are_settings_and_secrets_are_elsewhere() -> None:
    given = objects()["ConfigMap", "carillon"]["data"]
    secret = {"JWT_SECRET_KEY": "invented-with-at-least-32-characters", "CARILLON_ALLOW_SANDBOX": "1"}
    load(given["CARILLON_BLUEPRINT"], environ={**given, **secret})
    assert not [name for name in given if "SECRET" in name or "URL" in name or "KEY" in name]
    assert ("Secret", "carillon") not in objects()
    for name in DEPLOYMENTS:
        assert container(name)["envFrom"] == [
            {"configMapRef": {"name": "carillon"}},
            {"secretRef": {"name": "carillon"}},
        ]
