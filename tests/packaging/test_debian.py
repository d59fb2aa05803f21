"""The Debian package: built from the binary under test, looked into, and installed, used, removed and purged in a throw-away root."""

import gzip
import os
import re
import shutil
import subprocess
import unittest

import process
from process import BINARY, PACKAGING, PORTS, ProcessTest, run

# Runs in a mount namespace of its own: everything that is written under the root goes to a file system in memory. What is below
# `checks` runs in that root.
ROOT = """
set -e
mount -t tmpfs tmpfs "$1"
cd "$1"
mkdir upper work root
mount -t overlay overlay -o "lowerdir=/,upperdir=$1/upper,workdir=$1/work" root
# The folder with the package, where it is not on the root's own file system.
mkdir -p "root$2" && mount --bind "$2" "root$2"
mount -t proc proc root/proc
mount -t tmpfs tmpfs root/run
exec chroot root bash -c "$3"
"""

CHECKS = """
set -e
has() { [ -e "$1" ] && echo there || echo gone; }
dpkg --force-depends --force-unsafe-io --no-triggers -i PACKAGE >/dev/null 2>&1
echo "owner $(stat -c '%U:%G:%a' /var/lib/ceto)"
echo "verified $(dpkg --verify ceto | wc -l)"
command=$(sed -n 's/^ExecStart=//p' /usr/lib/systemd/system/ceto.service)
cd /var/lib/ceto
umask "$(sed -n 's/^UMask=//p' /usr/lib/systemd/system/ceto.service)"
setpriv --reuid ceto --regid ceto --clear-groups --no-new-privs --inh-caps=-all $command OPTIONS >/tmp/log 2>&1 &
node=$!
for _ in $(seq 600); do grep -q '^ceto ready' /tmp/log && break; sleep 0.05; done
echo "answers $(ceto ctl -p API statusbinary)"
kill -TERM $node && wait $node && echo "ended 0"
echo "data $(stat -c '%U:%a' /var/lib/ceto/identity)"
echo 'cluster_name: mine' >>/etc/ceto/ceto.yaml
dpkg --force-depends --force-unsafe-io --no-triggers -i PACKAGE </dev/null >/dev/null 2>&1
echo "kept $(grep -c '^cluster_name: mine' /etc/ceto/ceto.yaml)"
dpkg --no-triggers -r ceto >/dev/null 2>&1
echo "removed $(has /usr/bin/ceto) $(has /var/lib/ceto/identity) $(has /etc/ceto/ceto.yaml)"
dpkg --no-triggers -P ceto >/dev/null 2>&1
echo "purged $(has /var/lib/ceto) $(has /etc/ceto) $(getent passwd ceto | cut -d: -f1)"
"""


@unittest.skipUnless(shutil.which("dpkg-deb"), "dpkg-deb is not here")
class Package(ProcessTest):
    @classmethod
    def setUpClass(cls):
        cls.folder = process.RUNS / "package"
        shutil.rmtree(cls.folder, ignore_errors=True)
        cls.folder.mkdir(parents=True)
        cls.addClassCleanup(shutil.rmtree, cls.folder, True)
        environment = {**os.environ, "COMPRESSION": "none"}
        cls.package = run(PACKAGING / "debian" / "build.sh", BINARY, cls.folder, env=environment).strip()

    def field(self, name):
        return run("dpkg-deb", "--field", self.package, name).strip()

    def test_what_it_says_of_itself_is_the_programs(self):
        version = re.match(r"ceto (\S+) ", run(BINARY, "--version"))[1]
        self.assertEqual(self.field("Version"), version)
        self.assertEqual(self.field("Architecture"), run("dpkg", "--print-architecture").strip())
        libraries = self.field("Depends")
        self.assertRegex(libraries, r"libc6 \(>= 2\.\d+\)")
        self.assertTrue(os.path.exists(self.package))

    def test_files_are_where_the_system_looks_for_them(self):
        run("dpkg-deb", "--extract", self.package, self.work)
        files = {str(path.relative_to(self.work)): path for path in self.work.rglob("*") if path.is_file()}
        unit = PACKAGING / "systemd" / "ceto.service"
        self.assertEqual(files["usr/lib/systemd/system/ceto.service"].read_text(), unit.read_text())
        self.assertEqual(files["usr/share/bash-completion/completions/ceto"].read_text(), run(BINARY, "completions", "bash"))
        for path in ("usr/share/zsh/vendor-completions/_ceto", "usr/share/fish/vendor_completions.d/ceto.fish",
                     "usr/share/doc/ceto/copyright", "usr/share/doc/ceto/changelog.gz"):
            self.assertIn(path, files)
        page = gzip.decompress(files["usr/share/man/man1/ceto-server.1.gz"].read_bytes()).decode()
        self.assertIn(".TH ceto-server 1", page)
        self.assertEqual(run(files["usr/bin/ceto"], "--version"), run(BINARY, "--version"))
        sample = (PACKAGING / "ceto.yaml").read_text()
        configured = files["etc/ceto/ceto.yaml"].read_text()
        # One line differs from the sample: the unit lets the node write to this directory.
        self.assertEqual(configured, sample.replace("#workdir: ceto-data\n", "workdir: /var/lib/ceto\n"))
        self.assertNotEqual(configured, sample)
        self.assertIn("\nStateDirectory=ceto\n", unit.read_text())
        run("dpkg-deb", "--control", self.package, self.work / "control")
        self.assertEqual((self.work / "control" / "conffiles").read_text(), "/etc/ceto/ceto.yaml\n")
        for script in ("postinst", "prerm", "postrm"):
            run("sh", "-n", self.work / "control" / script)
            self.assertTrue(os.access(self.work / "control" / script, os.X_OK))

    def test_it_is_installed_used_updated_removed_and_purged(self):
        if os.geteuid() != 0 or not shutil.which("unshare"):
            self.skipTest("only root can make a throw-away root")
        options = " ".join([*PORTS, "--smp", "1", "--memory", "256M", "--overprovisioned"])
        checks = CHECKS.replace("PACKAGE", self.package).replace("OPTIONS", options).replace("API", PORTS[5])
        mount = self.work / "mount"
        mount.mkdir()
        command = ["unshare", "--mount", "--pid", "--fork", "--propagation", "private", "sh", "-c", ROOT, "sh", mount, self.folder, checks]
        done = subprocess.run([str(word) for word in command], capture_output=True, text=True, timeout=process.PATIENCE_SECONDS)
        if "owner" not in done.stdout and re.search("mount|unshare", done.stderr):
            self.skipTest(f"a throw-away root cannot be made here: {done.stderr.strip()}")
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertEqual(done.stdout.splitlines(), [
            "owner ceto:ceto:750", "verified 0", "answers running", "ended 0", "data ceto:640", "kept 1",
            "removed gone there there", "purged gone gone ceto"])


if __name__ == "__main__":
    process.main()
