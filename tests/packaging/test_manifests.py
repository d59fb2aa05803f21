"""The Kubernetes manifests fit together, and to the node and its image."""

import re
import unittest

import process
from plain_yaml import documents
from process import BINARY, PACKAGING, PORTS, SMALL, ProcessTest, run

TEXT = (PACKAGING / "kubernetes" / "ceto.yaml").read_text()


def seconds(probe):
    return probe["periodSeconds"] * probe["failureThreshold"]


class Manifests(ProcessTest):
    def setUp(self):
        super().setUp()
        self.all = documents(TEXT)
        self.stateful = self.one("StatefulSet")
        self.pod = self.stateful["spec"]["template"]["spec"]
        self.container, = self.pod["containers"]
        self.environment = {entry["name"]: entry for entry in self.container["env"]}

    def one(self, kind, name="ceto"):
        found, = [one for one in self.all if one["kind"] == kind and one["metadata"]["name"] == name]
        return found

    def test_each_kind_has_its_version_and_no_name_is_there_twice(self):
        versions = {"ConfigMap": "v1", "Service": "v1", "PodDisruptionBudget": "policy/v1", "StatefulSet": "apps/v1"}
        for one in self.all:
            self.assertEqual(one["apiVersion"], versions[one["kind"]])
        names = [(one["kind"], one["metadata"]["name"]) for one in self.all]
        self.assertEqual(len(names), len(set(names)))

    def test_everything_selects_the_pods(self):
        labels = self.stateful["spec"]["template"]["metadata"]["labels"]
        self.assertEqual(self.stateful["spec"]["selector"]["matchLabels"], labels)
        self.assertEqual(self.one("PodDisruptionBudget")["spec"]["selector"]["matchLabels"], labels)
        for name in ("ceto", "ceto-pods"):
            self.assertEqual(self.one("Service", name)["spec"]["selector"], labels)
        rules = self.pod["affinity"]["podAntiAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
        for rule in rules + self.pod["topologySpreadConstraints"]:
            self.assertEqual(rule["labelSelector"]["matchLabels"], labels)
        governing = self.one("Service", self.stateful["spec"]["serviceName"])
        self.assertEqual(governing["spec"]["clusterIP"], "None")

    def test_each_pod_has_a_lasting_address_that_all_seeds_name(self):
        pods = [f"ceto-{n}" for n in range(self.stateful["spec"]["replicas"])]
        own = self.environment["CETO_BROADCAST_ADDRESS"]["value"]
        services = [own.replace("$(POD_NAME)", pod) for pod in pods]
        self.assertEqual(self.environment["CETO_SEEDS"]["value"].split(","), services)
        for pod, service in zip(pods, services):
            spec = self.one("Service", service)["spec"]
            self.assertEqual(spec["selector"], {"statefulset.kubernetes.io/pod-name": pod})
            self.assertTrue(spec["publishNotReadyAddresses"], "nodes meet before they are ready")
            self.assertNotIn("clusterIP", spec)
        # None waits for another to be ready: the cluster is founded by all together.
        self.assertEqual(self.stateful["spec"]["podManagementPolicy"], "Parallel")
        # A variable is replaced only by those that stand before it.
        order = [entry["name"] for entry in self.container["env"]]
        for name, entry in self.environment.items():
            for used in re.findall(r"\$\((\w+)\)", entry.get("value", "")):
                self.assertLess(order.index(used), order.index(name))

    def test_every_variable_is_the_entrys(self):
        entry = (PACKAGING / "docker" / "entrypoint.sh").read_text()
        for name in self.environment:
            self.assertTrue(name in ("POD_NAME", "POD_IP") or f"${{{name}:-" in entry, name)

    def test_ports_are_the_images(self):
        exposed = re.search(r"(?m)^EXPOSE (.*)$", (PACKAGING / "docker" / "Dockerfile").read_text())[1].split()
        ports = {port["name"]: port["containerPort"] for port in self.container["ports"]}
        self.assertEqual(sorted(ports.values()), sorted(map(int, exposed)))
        for one in self.all:
            for port in one["spec"]["ports"] if one["kind"] == "Service" else []:
                self.assertEqual(port["port"], ports[port["name"]])
        self.assertEqual(self.container["livenessProbe"]["httpGet"]["port"], "metrics")
        annotations = self.stateful["spec"]["template"]["metadata"]["annotations"]
        self.assertEqual(int(annotations["prometheus.io/port"]), ports["metrics"])

    def test_a_node_has_time_to_start_and_to_drain(self):
        drain = int(re.search(r"(?m)^#shutdown_timeout: (\d+)s$", run(BINARY, "config", "sample"))[1])
        self.assertGreaterEqual(self.pod["terminationGracePeriodSeconds"], drain + 5 + 10)
        self.assertGreaterEqual(seconds(self.container["startupProbe"]), 3600)
        self.assertGreaterEqual(seconds(self.container["livenessProbe"]), 120)
        for probe in ("startupProbe", "readinessProbe"):
            self.assertIn(self.container[probe]["exec"]["command"][2], (PACKAGING / "docker" / "Dockerfile").read_text())

    def test_the_user_is_the_images_and_has_no_more_than_it_needs(self):
        user = re.search(r"(?m)^USER (\d+):(\d+)$", (PACKAGING / "docker" / "Dockerfile").read_text())
        context = self.pod["securityContext"]
        self.assertEqual([context["runAsUser"], context["runAsGroup"], context["fsGroup"]],
                         [int(user[1]), int(user[2]), int(user[2])])
        self.assertTrue(context["runAsNonRoot"] and self.container["securityContext"]["readOnlyRootFilesystem"])
        self.assertEqual(self.container["resources"]["requests"], self.container["resources"]["limits"])

    def test_volumes_are_there(self):
        mounts = {mount["name"]: mount["mountPath"] for mount in self.container["volumeMounts"]}
        claims = [claim["metadata"]["name"] for claim in self.stateful["spec"]["volumeClaimTemplates"]]
        volumes = {volume["name"]: volume for volume in self.pod["volumes"]}
        self.assertEqual(set(mounts), set(claims) | set(volumes))
        self.assertIn(f"VOLUME {mounts['data']}\n", (PACKAGING / "docker" / "Dockerfile").read_text())
        self.assertEqual(volumes["configuration"]["configMap"]["name"], "ceto")
        self.assertEqual(mounts["configuration"], "/etc/ceto")

    def test_the_configuration_starts_a_node(self):
        data = self.one("ConfigMap")["data"]
        self.assertEqual(list(data), ["ceto.yaml"])
        (self.work / "ceto.yaml").write_text(data["ceto.yaml"])
        node = self.start(BINARY, "server", "--config", "ceto.yaml", "--workdir", "data", *PORTS, *SMALL)
        node.wait_until_ready().end()
        self.assertNotRegex(node.log(), r"(?m)no effect|^WARN")


class Reader(unittest.TestCase):
    def test_what_is_not_plain_is_refused(self):
        for text in ("a: 1\na: 2\n", "a: 1\n   b: 2\n", "a: [b\n", "a: {b: c} d\n", "only words\n", "a: b: c\n", "a: >\n  x\n"):
            with self.assertRaises((ValueError, IndexError), msg=text):
                documents(text)


if __name__ == "__main__":
    process.main()
