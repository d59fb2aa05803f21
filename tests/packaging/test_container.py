"""The container image without a container: its entry, its user and its refusals, on loopback addresses, and the facts of its files."""

import ctypes
import os
import re
import struct
import subprocess
from fnmatch import fnmatch
from pathlib import Path

import native
import process
from plain_yaml import documents
from process import BINARY, PACKAGING, PORTS, REPO, ProcessTest, run, until

DOCKER = PACKAGING / "docker"
ENTRY = DOCKER / "entrypoint.sh"
ADDRESSES = ["127.0.77.1", "127.0.77.2", "127.0.77.3"]
SMALL = ["--smp", "1", "--memory", "256M"]
NO_NEW_PRIVILEGES, SECCOMP, FILTER = 38, 22, 2
IO_URING = [425, 426, 427]


def instructions():
    """Lines of the Dockerfile, with those that go on put together."""
    text = re.sub(r"\\\n\s*", "", (DOCKER / "Dockerfile").read_text())
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    return [tuple(line.split(None, 1)) for line in lines]


def refuse_io_uring():
    """Has the kernel refuse io_uring to this process, as container runtimes do: EPERM, by a filter of system calls."""
    load, equal, answer = 0x20, 0x15, 0x06
    refused, allowed = 0x00050001, 0x7FFF0000
    steps = [(load, 0, 0, 0)]
    steps += [(equal, len(IO_URING) - place, 0, call) for place, call in enumerate(IO_URING)]
    steps += [(answer, 0, 0, allowed), (answer, 0, 0, refused)]
    code = b"".join(struct.pack("HBBI", *step) for step in steps)
    held = ctypes.create_string_buffer(code)
    program = struct.pack("HL", len(steps), ctypes.addressof(held))
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(NO_NEW_PRIVILEGES, 1, 0, 0, 0) or libc.prctl(SECCOMP, FILTER, ctypes.c_char_p(program)):
        raise OSError(ctypes.get_errno(), "the filter is refused")


class Entry(ProcessTest):
    def setUp(self):
        super().setUp()
        # As in the image, `ceto` is found by its name.
        self.commands = self.work / "bin"
        self.commands.mkdir()
        (self.commands / "ceto").symlink_to(BINARY)
        self.environment = {"PATH": f"{self.commands}:/usr/bin:/bin", "CETO_CONFIG": str(DOCKER / "ceto.yaml")}

    def stub(self, name, text):
        """Puts a command of this name before the system's."""
        path = self.commands / name
        # A link to the binary is replaced, and not what it leads to.
        path.unlink(missing_ok=True)
        path.write_text(f"#!/bin/sh\n{text}\n")
        path.chmod(0o755)

    def node(self, address, *options, **environment):
        work = self.work / address
        work.mkdir(exist_ok=True)
        user = dict(IMAGE_USER) if os.geteuid() == 0 and self.user_reaches(BINARY, ENTRY) else {}
        if user:
            os.chown(work, user["user"], user["group"])
        environment = {**self.environment, "CETO_ADDRESS": address, "CETO_WORKDIR": str(work / "data"), **environment}
        started = process.Process(work, ["sh", ENTRY, "server", *SMALL, *options], env=environment, cwd=work, **user)
        self.addCleanup(started.kill)
        return started

    def user_reaches(self, *paths):
        command = ["sh", "-c", 'for path in "$@"; do [ -r "$path" ] || exit 1; done', "sh", self.work, *paths]
        return subprocess.run([str(word) for word in command], **IMAGE_USER).returncode == 0

    def test_three_containers_form_one_cluster_as_the_user_of_the_image(self):
        self.stub("getent", "\n".join(
            [f"[ $2 = ceto-{n} ] && echo '{address} STREAM ceto-{n}' && exit" for n, address in enumerate(ADDRESSES, 1)]
            + ["exec /usr/bin/getent \"$@\""]))
        seeds = "ceto-1,ceto-2,ceto-3"
        # Metrics are on every address of the machine, so each node has a port of its own here.
        nodes = [self.node(address, "--prometheus-port", str(native.PORT + 4 + n), CETO_ADDRESS=f"ceto-{n}", CETO_SEEDS=seeds)
                 for n, address in enumerate(ADDRESSES, 1)]
        for node in nodes:
            node.wait_until_ready()
        if os.geteuid() == 0 and self.user_reaches(BINARY, ENTRY):
            status = Path(f"/proc/{nodes[0].process.pid}/status").read_text()
            self.assertRegex(status, rf"(?m)^Uid:\t{IMAGE_USER['user']}\t")
        shown = until("three nodes", lambda: (found := self.ctl(ADDRESSES[0], "status")).count("\nUN  ") == 3 and found)
        for address in ADDRESSES:
            self.assertIn(f"UN  {address} ", shown)
        health = dict(instructions())["HEALTHCHECK"].split(" CMD ")[1]
        self.check_health(health, 0)
        self.ctl(ADDRESSES[0], "disablebinary")
        self.check_health(health, 1)
        for node in nodes:
            node.end()
        self.check_health(health, 1)

    def check_health(self, command, code):
        """Runs the image's check, at the first node's address in the place of the container's own."""
        self.assertIn("ceto ctl ", command)
        command = command.replace("ceto ctl ", f"ceto ctl -h {ADDRESSES[0]} ")
        run("sh", "-c", command, code=code, env=self.environment)

    def ctl(self, address, *words):
        return run("sh", ENTRY, "ctl", "-h", address, *words, env=self.environment)

    def test_a_container_that_may_not_use_io_uring_uses_epoll(self):
        work = self.work
        command = ["sh", ENTRY, "server", *SMALL, *PORTS]
        environment = {**self.environment, "CETO_ADDRESS": native.HOST, "CETO_WORKDIR": str(work / "data")}
        try:
            node = self.start(*command, env=environment, preexec_fn=refuse_io_uring)
        except subprocess.SubprocessError:
            self.skipTest("filters of system calls are not permitted here")
        node.wait_until_ready()
        self.assertIn("driver=poll", node.log())
        node.end()
        node = self.start(*command, "--driver", "uring", env=environment, preexec_fn=refuse_io_uring)
        self.assertEqual(node.process.wait(process.PATIENCE_SECONDS), 1)
        self.assertIn("does not allow io_uring", node.log())

    def test_a_name_without_an_address_stops_a_new_node_and_not_one_with_data(self):
        self.stub("getent", "[ $2 != gone ] && exec /usr/bin/getent \"$@\"; exit 2")
        self.stub("ceto", "echo started \"$@\"")
        environment = {**self.environment, "CETO_WORKDIR": str(self.work / "data"), "CETO_ADDRESS": "127.0.77.1",
                       "CETO_SEEDS": "127.0.77.1,gone, 127.0.77.3", "CETO_SEED_SECONDS": "0"}

        def entry(code, **more):
            command = ["sh", str(ENTRY), "server", "--rack", "r 1"]
            done = subprocess.run(command, env={**environment, **more}, capture_output=True, text=True, timeout=60)
            self.assertEqual(done.returncode, code, done)
            return done.stdout + done.stderr

        self.assertIn("the address of seed gone is not known after 0 s", entry(1))
        self.assertIn("the address of gone is not known: give CETO_ADDRESS", entry(1, CETO_ADDRESS="gone"))
        self.assertIn("give CETO_BROADCAST_ADDRESS", entry(1, CETO_BROADCAST_ADDRESS="gone"))
        (self.work / "data").mkdir()
        (self.work / "data" / "identity").touch()
        told = entry(0)
        self.assertIn("goes on without seed gone", told)
        self.assertIn("--listen 127.0.77.1 --seeds 127.0.77.1,127.0.77.3 --rack r 1", told)
        told = entry(0, CETO_SEEDS="", CETO_BROADCAST_ADDRESS="127.0.77.9")
        self.assertIn("--broadcast-address 127.0.77.9 --broadcast-rpc-address 127.0.77.9 --rack", told)
        self.assertNotIn("--seeds", told)


class Files(ProcessTest):
    def test_what_the_image_copies_is_there_and_not_ignored(self):
        kept = [line[1:] for line in (REPO / ".dockerignore").read_text().splitlines() if line.startswith("!")]
        for entry in kept:
            self.assertTrue((REPO / entry).exists(), entry)
        for path in ("crates/server/src/main.rs", "Cargo.lock"):
            self.assertTrue(any(path == entry or path.startswith(entry + "/") for entry in kept), path)
        copied = [rest.split() for name, rest in instructions() if name == "COPY" and "--from" not in rest and rest != ". ."]
        self.assertTrue(copied)
        for source, _ in copied:
            self.assertTrue((REPO / source).is_file(), source)
            self.assertTrue(any(fnmatch(source, entry + "/*") for entry in kept), source)
        self.assertIn(re.findall(r'"([^"]+)"', dict(instructions())["ENTRYPOINT"])[0], [place for _, place in copied])
        self.assertTrue(os.access(ENTRY, os.X_OK))
        self.assertIn(dict(instructions())["CMD"], ['["server"]'])

    def test_ports_and_the_user_are_the_nodes(self):
        sample = run(BINARY, "config", "sample")
        keys = ["native_transport_port", "native_shard_aware_transport_port", "storage_port", "prometheus_port"]
        ports = [re.search(rf"(?m)^#{key}: (\d+)$", sample)[1] for key in keys]
        self.assertEqual(dict(instructions())["EXPOSE"].split(), ports)
        self.assertEqual(dict(instructions())["USER"], f"{IMAGE_USER['user']}:{IMAGE_USER['group']}")
        self.assertGreater(IMAGE_USER["user"], 0)

    def test_compose_has_three_nodes_that_know_each_other_and_time_to_drain(self):
        compose, = documents((DOCKER / "compose.yaml").read_text())
        services = compose["services"]
        self.assertEqual(len(services), 3)
        addresses, volumes = set(), set()
        for name, service in services.items():
            self.assertEqual(service["environment"]["CETO_SEEDS"].split(","), list(services))
            self.assertEqual(service["hostname"], name)
            self.assertGreaterEqual(int(service["stop_grace_period"].rstrip("s")), 75)
            self.assertTrue((DOCKER / service["build"]["context"] / service["build"]["dockerfile"]).is_file())
            addresses.add(service["networks"]["ceto"]["ipv4_address"])
            volume, place = service["volumes"][0].split(":")
            self.assertEqual(place, dict(instructions())["VOLUME"])
            volumes.add(volume)
            run(BINARY, *service["command"], "--help")
        self.assertEqual((len(addresses), volumes), (3, set(compose["volumes"])))


# `useradd --uid` of the image.
IMAGE_USER = {"user": int(re.search(r"useradd .*--uid (\d+)", str(instructions()))[1]),
              "group": int(re.search(r"groupadd .*--gid (\d+)", str(instructions()))[1]), "extra_groups": []}

if __name__ == "__main__":
    process.main()
