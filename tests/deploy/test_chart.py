"""The Helm chart, linted, rendered and compared with the plain manifests: both deploy the same pods."""

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from carillon import __version__
from carillon.config.reading import load
from tests.deploy.test_kubernetes import DEPLOYMENTS, objects
from tests.support.sources import ROOT

CHART = ROOT / "deploy" / "helm" / "carillon"
FILE = 'extends = "listo"\n\n[work]\ndrain_seconds = 20\n'


def helm(*words: str, check: bool = True) -> subprocess.CompletedProcess[str]:
    beside = Path(sys.executable).with_name("helm")
    found = str(beside) if beside.exists() else shutil.which("helm")
    if found is None:
        pytest.skip("helm is not installed: make chart installs it")
    return subprocess.run([found, *words], capture_output=True, text=True, check=check, timeout=200)


def rendered(*values: str) -> dict[tuple[str, str], Any]:
    text = helm("template", "carillon", str(CHART), *(word for value in values for word in ("--set", value))).stdout
    found = [each for each in yaml.safe_load_all(text) if each]
    return {(each["kind"], each["metadata"]["name"]): each for each in found}


def test_the_chart_is_of_this_version() -> None:
    told = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert (told["version"], told["appVersion"]) == (__version__, __version__)


def test_every_value_is_in_the_schema_and_back() -> None:
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    schema = json.loads((CHART / "values.schema.json").read_text())
    assert set(values) == set(schema["properties"]) - {"global"}


@pytest.mark.req("P-554")
def test_it_is_linted_and_refuses_what_it_does_not_know() -> None:
    helm("lint", "--strict", str(CHART))
    refused = helm("template", "carillon", str(CHART), "--set", "doors.replica=3", check=False)
    assert refused.returncode != 0
    assert "replica" in refused.stderr
    unnamed = helm("template", "carillon", str(CHART), "--set", "ingress.enabled=true", check=False)
    assert "name the host" in unnamed.stderr


@pytest.mark.req("P-624")
@pytest.mark.parametrize(
    ("value", "word"),
    [
        ("settings.JWT_SECRET_KEY=x", "put secrets into the secret carillon"),
        ("settings.DATABASE_URL=postgresql://x", "put secrets into the secret carillon"),
        ("settings.CARILLON_PROVIDERS__SMTP__PASSWORD=x", "put secrets into"),
        ("settings.lower=x", "settings"),
        ("doors.resources.limit.memory=1Gi", "limit"),
        ("outbound.autoscaling.maxReplica=4", "maxReplica"),
        (
            "outbound.autoscaling.maxReplicas=1",
            "outbound.autoscaling.maxReplicas: 1 is fewer than outbound.replicas, 2",
        ),
        ("doors.replicas=0", "replicas"),
        ("doors.roles=doors upkeep", "roles"),
        ("service.type=Nowhere", "service"),
        ("serviceAccount.annotation.x=y", "annotation"),
    ],
)
def test_wrong_values_are_refused_and_named(value: str, word: str) -> None:
    refused = helm("template", "carillon", str(CHART), "--set", value, check=False)
    assert refused.returncode != 0, refused.stdout
    assert word in refused.stderr


@pytest.mark.req("P-624")
def test_pods_are_added_while_they_are_busy() -> None:
    found = rendered("doors.autoscaling.maxReplicas=8", "doors.autoscaling.cpuPercent=60")
    scaler = found["HorizontalPodAutoscaler", "carillon-doors"]["spec"]
    assert (scaler["minReplicas"], scaler["maxReplicas"]) == (2, 8)
    assert scaler["scaleTargetRef"]["name"] == "carillon-doors"
    assert scaler["metrics"][0]["resource"]["target"]["averageUtilization"] == 60
    # An upgrade must not set back what the autoscaler has chosen.
    assert "replicas" not in found["Deployment", "carillon-doors"]["spec"]
    assert found["Deployment", "carillon-outbound"]["spec"]["replicas"] == 2
    assert ("HorizontalPodAutoscaler", "carillon-outbound") not in found
    assert found["Deployment", "carillon-doors"]["spec"]["template"]["spec"]["containers"][0]["resources"]["requests"][
        "cpu"
    ]


@pytest.mark.req("P-624")
def test_the_values_of_an_older_release_still_do() -> None:
    unknown = (
        "serviceAccount",
        "secretFiles",
        "doors.roles",
        "doors.autoscaling",
        "outbound.roles",
        "outbound.autoscaling",
    )
    assert rendered(*(f"{name}=null" for name in unknown)) == rendered()


@pytest.mark.req("P-624")
def test_secret_files_roles_and_a_clouds_identity() -> None:
    account = r"serviceAccount.annotations.eks\.amazonaws\.com/role-arn=arn:aws:iam::1:role/carillon"
    found = rendered("secretFiles=keys", "config=x", "outbound.roles=outbound\\,payment", account)
    assert "role-arn" in str(found["ServiceAccount", "carillon"]["metadata"]["annotations"])
    for name in DEPLOYMENTS:
        pod = found["Deployment", f"carillon-{name}"]["spec"]["template"]["spec"]
        (container,) = pod["containers"]
        places = {mount["name"]: mount for mount in container["volumeMounts"]}
        assert places["secrets"] == {"name": "secrets", "mountPath": "/etc/carillon/secrets", "readOnly": True}
        assert {volume["name"]: volume for volume in pod["volumes"]}["secrets"]["secret"]["secretName"] == "keys"
    sends = found["Deployment", "carillon-outbound"]["spec"]["template"]["spec"]["containers"][0]
    assert sends["args"] == ["serve", "--roles", "outbound,payment"]
    assert all(each["metadata"]["labels"]["app.kubernetes.io/instance"] == "carillon" for each in found.values())


@pytest.mark.req("P-554")
@pytest.mark.parametrize("name", DEPLOYMENTS)
def test_it_deploys_the_pods_of_the_plain_manifests(name: str) -> None:
    """A rule about pods stands in two places: here they are held together."""
    plain, ours = objects(), rendered()
    for kind in ("Deployment", "PodDisruptionBudget"):
        one, other = plain[kind, f"carillon-{name}"]["spec"], ours[kind, f"carillon-{name}"]["spec"]
        assert {**one, "selector": None, "template": None} == {**other, "selector": None, "template": None}
    here = ours["Deployment", f"carillon-{name}"]["spec"]
    there = plain["Deployment", f"carillon-{name}"]["spec"]["template"]["spec"]
    pod = here["template"]["spec"]
    (container,), (known,) = pod.pop("containers"), there.pop("containers")
    assert container.pop("imagePullPolicy") == "IfNotPresent"
    assert container == known
    for spread in (*pod["topologySpreadConstraints"], *there["topologySpreadConstraints"]):
        assert spread.pop("labelSelector")
    assert pod == there
    labels = here["template"]["metadata"]["labels"].items()
    assert here["selector"]["matchLabels"].items() <= labels
    assert ours["PodDisruptionBudget", f"carillon-{name}"]["spec"]["selector"]["matchLabels"].items() <= labels


@pytest.mark.req("P-554")
def test_two_releases_side_by_side_do_not_meet() -> None:
    text = helm("template", "other", str(CHART)).stdout
    others = {(each["kind"], each["metadata"]["name"]): each for each in yaml.safe_load_all(text) if each}
    assert not set(others) & set(rendered())
    pod = rendered()["Deployment", "carillon-doors"]["spec"]["template"]["metadata"]["labels"]
    assert not others["Service", "other"]["spec"]["selector"].items() <= pod.items()


@pytest.mark.req("P-554")
def test_a_settings_file_is_mounted_and_read(tmp_path: Path) -> None:
    (tmp_path / "values.yaml").write_text(yaml.safe_dump({"config": FILE}))
    text = helm("template", "carillon", str(CHART), "--values", str(tmp_path / "values.yaml")).stdout
    found = {(each["kind"], each["metadata"]["name"]): each for each in yaml.safe_load_all(text) if each}
    file = tmp_path / "carillon.toml"
    file.write_text(found["ConfigMap", "carillon-file"]["data"]["carillon.toml"])
    given = found["ConfigMap", "carillon"]["data"]
    secret = {"JWT_SECRET_KEY": "invented-with-at-least-32-characters", "CARILLON_ALLOW_SANDBOX": "1"}
    assert load(config=file, environ={**given, **secret}).work.drain_seconds == 20
    for name in DEPLOYMENTS:
        pod = found["Deployment", f"carillon-{name}"]["spec"]["template"]["spec"]
        (container,) = pod["containers"]
        assert container["env"] == [{"name": "CARILLON_CONFIG", "value": "/etc/carillon/carillon.toml"}]
        mounted = {mount["name"] for mount in container["volumeMounts"]}
        assert mounted == {volume["name"] for volume in pod["volumes"]}
    first = rendered()["Deployment", "carillon-doors"]["spec"]["template"]["metadata"]["annotations"]
    second = found["Deployment", "carillon-doors"]["spec"]["template"]["metadata"]["annotations"]
    assert first != second, "changed settings replace the pods"
