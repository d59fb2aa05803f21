"""The shell at a pseudo-terminal: prompts, completion, paging, history, Ctrl-C and Ctrl-D."""

import os
import re
import signal
import time
import unittest

from shell import ShellTest, Terminal

TABLES = """
USE k;
CREATE TABLE visitors (id int PRIMARY KEY, full_name text, birthday date);
CREATE TABLE many (k int PRIMARY KEY);
"""
UP, TAB, CTRL_C, CTRL_D = "\x1b[A", "\t", "\x03", "\x04"


class AtTheTerminal(ShellTest):
    TABLES = TABLES

    def open(self, *options, **environment):
        terminal = Terminal(*options, folder=self.folder, environment=environment)
        terminal.expect(r"Use HELP for help\.\r\n")
        return terminal

    def leave(self, terminal):
        # Before the prompt the key would be the terminal's, and not the editor's.
        terminal.expect(r"ceto(:k)?> $")
        terminal.send(CTRL_D)
        self.assertEqual(terminal.end(), 0)

    def test_statements_of_several_lines(self):
        shell = self.open()
        shell.expect(r"ceto> $")
        shell.send("USE k;\r")
        shell.expect(r"ceto:k> $")
        shell.send("SELECT id\r")
        shell.expect(r"    \.\.\. $")
        shell.send("FROM visitors;\r")
        self.assertIn(" id\r\n----\r\n", shell.expect(r"\(0 rows\)\r\n"))
        shell.expect(r"ceto:k> $")
        shell.send("SELECT nothing;\r")
        shell.expect("SyntaxException: .*\r\n")
        self.leave(shell)

    def test_ctrl_c_drops_the_line(self):
        shell = self.open()
        shell.expect(r"ceto> $")
        shell.send("SELECT 'open\r")
        shell.expect(r"   \.\.\. $")
        shell.send("more" + CTRL_C)
        shell.expect(r"ceto> $")
        shell.send("SHOW HOST\r")
        shell.expect("Connected to Test Cluster")
        shell.expect(r"ceto> $")
        shell.send("exit\r")
        self.assertEqual(shell.end(), 0)

    def test_tab_completes(self):
        shell = self.open("-k", "k")
        shell.expect(r"ceto:k> $")
        shell.send("sel" + TAB + "full_name FROM vis" + TAB + "WHERE bi" + TAB)
        shell.expect(r"SELECT full_name FROM visitors WHERE birthday")
        shell.send(CTRL_C)
        shell.expect(r"ceto:k> $")
        shell.send("INSERT INTO system_vi" + TAB + TAB)
        shell.expect(r"system_views\.\s+system_virtual_schema\.|system_views +system_virtual_schema")
        shell.send(CTRL_C)
        shell.expect(r"ceto:k> $")
        # What another session made meanwhile is known after a while; what this one made is known at once.
        shell.send("CREATE TABLE zebras (stripes int PRIMARY KEY);\r")
        shell.expect(r"ceto:k> $")
        shell.send("SELECT s" + TAB)
        shell.send(CTRL_C)
        shell.expect(r"ceto:k> $")
        shell.send("SELECT * FROM zeb" + TAB + "WHERE\r")
        shell.expect(r"    \.\.\. $")
        shell.send("str" + TAB)
        shell.expect("stripes")
        shell.send(CTRL_C)
        shell.expect(r"ceto:k> $")
        shell.send("consist" + TAB + "each" + TAB + "\r")
        shell.expect(r"Consistency level set to EACH_QUORUM\.")
        (self.folder / "statements.cql").write_text("SHOW HOST\n")
        shell.expect(r"ceto:k> $")
        shell.send("SOURCE 'statem" + TAB + "'\r")
        shell.expect("Connected to")
        self.leave(shell)

    def test_pages_wait_for_a_key(self):
        self.cql("".join(f"INSERT INTO many (k) VALUES ({k});" for k in range(25)))
        shell = self.open("-k", "k")
        shell.send("PAGING 10\r")
        shell.expect("Page size: 10\r\n")
        shell.send("SELECT k FROM many;\r")
        self.assertEqual(len(re.findall(r"\r\n +\d+(?=\r)", shell.expect("---MORE---"))), 10)
        shell.send("\r")
        text = shell.expect("---MORE---")
        self.assertIn(" k\r\n----\r\n", text, "each page has its header")
        shell.send("\r")
        shell.expect(r"\(25 rows\)")
        shell.send("SELECT k FROM many;\r")
        shell.expect("---MORE---")
        shell.send(CTRL_C)
        shell.expect(r"\(10 rows\)")
        self.leave(shell)

    def test_history_is_kept_for_the_next_session(self):
        history = str(self.folder / "kept" / "history")
        os.makedirs(self.folder / "kept")
        shell = self.open(CETO_SHELL_HISTORY=history)
        shell.send("SHOW HOST\r")
        shell.expect(r"ceto> $")
        shell.send("CREATE ROLE r WITH PASSWORD = 'secret';\r")
        shell.expect("Unauthorized|support PASSWORD")
        self.leave(shell)
        shell = self.open(CETO_SHELL_HISTORY=history)
        shell.expect(r"ceto> $")
        shell.send(UP)
        shell.expect("SHOW HOST")
        shell.send("\r")
        shell.expect("Connected to")
        shell.send("HISTORY 5\r")
        shell.expect(r"HISTORY 5\r\nSHOW HOST\r\n")
        self.leave(shell)
        self.assertNotIn("secret", (self.folder / "kept" / "history").read_text())
        home = str(self.folder / "home")
        shell = self.open(CETO_SHELL_HISTORY="", HOME=home)
        self.leave(shell)
        self.assertFalse(os.path.exists(home))

    def test_ctrl_c_ends_the_wait_for_an_answer(self):
        shell = self.open("--request-timeout", "60")
        shell.expect(r"ceto> $")
        os.kill(self.node.pid(), signal.SIGSTOP)
        try:
            shell.send("SELECT key FROM system.local;\r")
            shell.expect(r"local;\r\n")
            # The line is done once the terminal makes signals of keys again.
            time.sleep(0.3)
            shell.send(CTRL_C)
            shell.expect("interrupted; the statement may still be at work")
        finally:
            os.kill(self.node.pid(), signal.SIGCONT)
        shell.expect(r"ceto> $")
        shell.send("SELECT key FROM system.local;\r")
        shell.expect(r"\(1 rows\)")
        self.leave(shell)

    def test_a_server_that_was_away_is_connected_to_again(self):
        shell = self.open("-k", "k")
        shell.expect(r"ceto:k> $")
        self.node.stop()
        shell.send("SELECT id FROM visitors;\r")
        shell.expect("closed the connection|refused|reset")
        shell.expect(r"ceto:k> $")
        self.node.start()
        shell.send("SELECT id FROM visitors;\r")
        shell.expect(r"\(0 rows\)")
        self.leave(shell)


if __name__ == "__main__":
    unittest.main(verbosity=2)
