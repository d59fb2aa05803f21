"""What `ceto config`, `ceto completions` and `ceto man` print, put to use."""

import re
import shutil

import native
import process
from process import BINARY, PACKAGING, PORTS, SMALL, ProcessTest, run

# What a file for a disk looks like that `ceto io-setup` writes.
DISKS = "disks: [{mountpoint: %s, read_iops: 1000, read_bandwidth: 100M, write_iops: 1000, write_bandwidth: 100M}]\n"


class Sample(ProcessTest):
    def sample(self):
        text = run(BINARY, "config", "sample")
        self.assertEqual(text, (PACKAGING / "ceto.yaml").read_text())
        return text

    def check(self, text, *options):
        """Starts a node with this configuration, and returns its log."""
        (self.work / "ceto.yaml").write_text(text)
        node = self.start(BINARY, "server", "--config", "ceto.yaml", *PORTS, *options).wait_until_ready()
        with native.Connection() as c:
            self.assertEqual(c.query("SELECT key FROM system.local"), [[b"local"]])
        node.end()
        log = node.log()
        self.assertNotRegex(log, "has no effect|keys without effect|^(WARN|ERROR)")
        return log

    def test_the_sample_starts_a_node_as_it_is(self):
        self.assertIn("configuration=ceto.yaml", self.check(self.sample(), *SMALL))

    def test_the_sample_starts_a_node_with_every_key_in_force(self):
        text, count = re.subn(r"(?m)^#(?=[a-z])", "", self.sample())
        self.assertGreater(count, 150)
        self.assertEqual(len(re.findall(r"(?m)^[a-z]\w*: \S", text)), count)
        (self.work / "ceto-data").mkdir()
        (self.work / "ceto-data" / "io_properties.yaml").write_text(DISKS % self.work)
        log = self.check(text)
        self.assertIn("1 shard(s), 1024 MiB of memory", log)
        self.assertTrue((self.work / "ceto-data" / "commitlog").is_dir())


class Completions(ProcessTest):
    def bash(self, *words):
        """What bash offers for the last of these words."""
        script = self.work / "ceto.bash"
        script.write_text(run(BINARY, "completions", "bash"))
        typed = " ".join(f"'{word}'" for word in words)
        # `_ceto COMMAND WORD PREVIOUS`, as bash calls it.
        text = f"""source '{script}'; COMP_WORDS=({typed}); COMP_CWORD={len(words) - 1}
            _ceto ceto '{words[-1]}' '{words[-2]}'; printf '%s\\n' "${{COMPREPLY[@]}}" """
        return run("bash", "--norc", "-c", text).split()

    def test_bash_completes_commands_verbs_and_options(self):
        self.assertEqual(self.bash("ceto", "serv"), ["server"])
        self.assertEqual(self.bash("ceto", "ctl", "compactionst"), ["compactionstats"])
        self.assertEqual(self.bash("ceto", "server", "--prom"), ["--prometheus-port"])
        self.assertEqual(self.bash("ceto", "server", "--driver", ""), ["auto", "uring", "poll"])

    def test_zsh_and_fish_take_their_scripts(self):
        shells = [shell for shell in ("zsh", "fish") if shutil.which(shell)]
        for shell in shells:
            script = self.work / f"ceto.{shell}"
            script.write_text(run(BINARY, "completions", shell))
            run(shell, "-n", script)
        if not shells:
            self.skipTest("neither zsh nor fish is here")


class Pages(ProcessTest):
    def test_each_command_has_a_page_that_renders(self):
        run(BINARY, "man", self.work / "man1")
        pages = sorted(path.name for path in (self.work / "man1").iterdir())
        commands = re.findall(r"(?m)^  ([a-z-]+)  ", run(BINARY, "--help"))
        self.assertIn("server", commands)
        for command in commands:
            if command != "help":
                self.assertIn(f"ceto-{command}.1", pages)
        self.assertIn("ceto-ctl-status.1", pages)
        for renderer in (["mandoc", "-W", "error"], ["man", "--warnings", "-l"]):
            if shutil.which(renderer[0]):
                self.assertIn("--shutdown-timeout", run(*renderer, self.work / "man1" / "ceto-server.1"))
                return
        self.skipTest("neither mandoc nor man is here")


if __name__ == "__main__":
    process.main()
