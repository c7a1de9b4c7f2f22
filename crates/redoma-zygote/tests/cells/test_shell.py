"""Cells of bash."""

import os
import shutil
import signal
import time

import redoma_shell
from support import Workspace, interrupt_after


class Bash(Workspace):
    def setUp(self):
        super().setUp()
        self.shell = redoma_shell.Shell(self.workspace)

    def cell(self, code):
        self.answer = self.shell.run(code)
        self.printed = self.output.new()
        return self.printed

    def code(self):
        return self.answer["exit_code"]

    def test_prints_and_says_how_it_ended(self):
        self.assertEqual(self.cell("echo hi; echo oops >&2"), "hi\noops\n")
        self.assertEqual(self.answer, {"status": "ok", "exit_code": 0, "notes": []})
        self.cell("false")
        self.assertEqual(self.answer, {"status": "error", "exit_code": 1, "notes": []})

    def test_starts_in_the_workspace_with_nothing_to_read(self):
        self.assertEqual(self.cell("pwd; cat; echo $0 ${BASH_SOURCE[0]}"), f"{self.workspace}\ncell cell\n")

    def test_variables_of_all_kinds_live_on(self):
        self.cell("a=1; b=(x 'y z' \"\"); declare -A c=(['k ]\"']=v); export d=4; readonly e=5; declare -i f=6; "
            "declare -u g=up")
        self.cell("b+=(more); f+=1; unset a")
        seen = self.cell("declare -p b c d e f g; echo ${a-none}; bash -c 'echo $d'; e=6")
        self.assertIn('declare -a b=([0]="x" [1]="y z" [2]="" [3]="more")', seen)
        self.assertIn('v"', seen)
        self.assertIn('declare -x d="4"', seen)
        self.assertIn('declare -r e="5"', seen)
        self.assertIn('declare -i f="7"', seen)
        self.assertIn('declare -u g="UP"', seen)
        self.assertIn("none\n4\n", seen)
        self.assertIn("cell: line 1: e: readonly variable", seen)

    def test_values_come_back_byte_by_byte(self):
        self.cell(r"""x=$'a\n"b\'c\\d`$e\t\x01\xff é\n\ndeclare -- evil="1"\n'; y=("$x"); declare -A z=(["$x"]="$x")""")
        same = self.cell(
            r"""w=$'a\n"b\'c\\d`$e\t\x01\xff é\n\ndeclare -- evil="1"\n'
            [[ $x == "$w" && ${y[0]} == "$w" && ${z[$w]} == "$w" && -z ${evil-} ]] && echo same"""
        )
        self.assertEqual(same, "same\n")

    def test_references_to_variables_live_on(self):
        self.cell("target=(1 2); declare -n ref=target")
        self.assertEqual(self.cell("ref+=(3); echo ${target[@]}; declare -p ref"), '1 2 3\ndeclare -n ref="target"\n')

    def test_functions_live_on_with_what_they_need(self):
        self.cell("shopt -s extglob\nf() { case $1 in @(a|b)) echo ab;; *) cat <<X\nother $1\nX\n;; esac; "
            "}\nexport -f f\nd-e() { echo dash; }")
        self.assertEqual(self.cell("f a; f z; d-e"), "ab\nother z\ndash\n")

    def test_aliases_and_options_live_on(self):
        self.cell("alias ll='echo LL'; shopt -s nullglob; set -o pipefail; set +B; umask 027; cd /usr; cd /")
        self.assertEqual(
            self.cell("ll; echo {a,b} /nothing*; false | true; echo $?; umask; pwd; cd -"),
                "LL\n{a,b}\n1\n0027\n/\n/usr\n"
        )
        self.cell("shopt -u sourcepath; shopt extglob")
        self.assertRegex(self.printed, r"extglob\s+off")
        self.assertRegex(self.cell("shopt sourcepath"), r"off")

    def test_the_folder_may_go(self):
        self.cell("mkdir d; cd d")
        self.cell("rmdir ../d; x=1")
        self.assertEqual(self.cell("pwd; echo $x"), f"{self.workspace}\n1\n")
        self.assertIn("is gone", self.answer["notes"][0])

    def test_exit_ends_the_cell_and_keeps_its_variables(self):
        self.cell("x=1; exit 3; x=2")
        self.assertEqual(self.code(), 3)
        self.assertEqual(self.cell("echo $x"), "1\n")

    def test_leaving_from_within_a_function_keeps_what_is_outside(self):
        self.cell("x=outside; y=(a b); IFS=' '")
        self.cell("f() { local x=inside IFS=, only=1; local -n r=y; r+=(c); new=1; g; }; g() { local x=deeper; "
            "exit 4; }; f")
        self.assertEqual(self.code(), 4)
        self.assertEqual(self.cell('echo "$x|${y[*]}|$IFS|${only-none}|$new"'), "outside|a b c| |none|1\n")

    def test_errexit_ends_the_cell_and_lives_on(self):
        self.assertEqual(self.cell("set -euo pipefail\nx=1\nfalse\necho no"), "")
        self.assertEqual(self.code(), 1)
        self.assertEqual(self.cell("echo $x; false; echo no"), "1\n")
        self.assertIn("cell: line 2: nope: unbound variable", self.cell("\necho $nope"))
        self.assertEqual(self.cell("set +eu; false; echo yes"), "yes\n")
        self.assertEqual(self.answer["notes"], [])

    def test_xtrace_shows_nothing_of_ours(self):
        self.cell("set -x")
        self.assertEqual(self.cell("echo a\ntrap 'echo bye' USR1"), "++ echo a\na\n++ trap 'echo bye' USR1\n")
        self.assertEqual(self.cell("set +x"), "++ set +x\n")
        self.assertEqual(self.cell("echo b"), "b\n")

    def test_names_of_builtins_may_be_functions(self):
        words = (
            "cd declare exit printf unset eval set trap source return local shopt export pwd mapfile alias umask exec "
            "test"
        )
        self.cell("x=1; " + "; ".join(f"{word}() {{ echo no; }}" for word in words.split()) + "; IFS=x; PATH=")
        self.assertEqual(self.answer, {"status": "ok", "exit_code": 0, "notes": []})
        self.assertEqual(self.cell("echo $x; cd; x=2; IFS=:"), "1\nno\n")
        self.assertEqual(self.cell("builtin() { echo no; }; command() { echo no; }; x=3"), "")
        self.assertEqual(self.cell("echo $x; printf"), "3\nno\n")
        self.assertEqual(self.answer["notes"], [])

    def test_names_of_builtins_may_be_aliases(self):
        self.cell("alias builtin='echo no' declare='echo no' unset='echo no' trap='echo no'; x=1")
        self.assertEqual(self.cell("echo $x\ndeclare"), "1\nno\n")
        self.assertEqual(self.answer["notes"], [])

    def test_posix_mode_lives_on(self):
        self.cell("set -o posix; x=1")
        self.assertRegex(self.cell("set -o | grep posix; echo $x"), r"posix\s+on\n1")
        self.cell("set +o posix")
        self.assertRegex(self.cell("set -o | grep posix"), "off")

    def test_messages_name_the_line(self):
        seen = self.cell("#!/bin/bash\nfoo_x\nf() {\n  bar_x\n}\nf\nif )\n")
        self.assertIn("cell: line 2: foo_x: command not found", seen)
        self.assertIn("cell: line 4: bar_x: command not found", seen)
        self.assertIn("cell: line 7: syntax error near unexpected token `)'", seen)
        self.assertEqual(self.code(), 2)

    def test_no_line_of_bash_changes_nothing(self):
        self.cell("set -e; x=1; cd /usr")
        self.assertIn("cell: line 1: syntax error", self.cell("if )"))
        self.assertEqual(self.answer, {"status": "error", "exit_code": 2, "notes": []})
        self.assertIn("unexpected EOF", self.cell('echo "'))
        self.assertEqual(self.cell("pwd; echo $x; shopt -o errexit"), "/usr\n1\nerrexit        \ton\n")

    def test_a_trap_on_exit_runs_at_the_cells_end(self):
        self.assertEqual(self.cell("trap 'echo bye $?; seen=1' EXIT; trap -p EXIT; (exit 5)").splitlines()[-1], "bye 5")
        self.assertEqual(self.code(), 5)
        self.assertEqual(self.cell("trap -p EXIT; echo $seen"), "1\n")
        self.cell("trap 'exit 9' EXIT; kept=1")
        self.assertEqual(self.code(), 9)
        self.assertEqual(self.cell("echo $kept; trap 'echo no' 0; trap - EXIT; (trap 'echo sub' EXIT)"), "1\nsub\n")

    def test_traps_on_signals_and_errors_live_on(self):
        self.cell("trap 'echo \"it'\"'\"'s usr\"' USR1; trap 'echo err' ERR")
        self.assertEqual(self.cell("kill -USR1 $$; false"), "it's usr\nerr\n")
        self.cell("trap - ERR USR1")
        self.assertEqual(self.cell("false"), "")

    def test_a_signal_loses_the_cells_changes_only(self):
        self.cell("x=1")
        for name, code in (("KILL", 137), ("TERM", 143), ("SEGV", 139)):
            self.cell(f"x=2; kill -{name} $$; sleep 1")
            self.assertEqual(self.code(), code)
            self.assertIn(f"SIG{name}", self.answer["notes"][0])
        self.assertEqual(self.cell("echo $x"), "1\n")

    def test_what_hides_the_variables_is_said(self):
        self.cell("x=1")
        for code in ("x=2; exec true", "x=2; for n in {3..250}; do eval \"exec $n>&-\"; done 2>/dev/null",
            "x=2; set -n"):
            self.cell(code)
            self.assertEqual(self.code(), 0)
            self.assertIn("did not hand over", self.answer["notes"][0])
            self.assertEqual(self.cell("echo $x"), "1\n")

    def test_too_much_is_not_kept(self):
        self.cell("x=1")
        for size in (1100000, 9000000):
            self.cell(f"x=2; printf -v big %{size}s")
            self.assertEqual(self.code(), 0)
            self.assertIn("too large to keep", self.answer["notes"][0])
            self.assertEqual(self.cell("echo $x ${big-none}"), "1 none\n")
        self.cell("printf -v most %900000s")
        self.assertEqual(self.cell("echo ${#most}"), "900000\n")

    def test_background_jobs_go_on(self):
        began = time.monotonic()
        self.cell("(sleep 0.5; echo late > file) & disown; sleep 30 & echo $! > pid")
        self.assertLess(time.monotonic() - began, 0.45)
        with open(f"{self.workspace}/pid") as file:
            job = int(file.read())
        interrupt_after(0.2)
        self.cell("sleep 20")
        os.kill(job, 0)
        time.sleep(0.5)
        self.assertEqual(self.cell("cat file"), "late\n")
        os.kill(job, signal.SIGKILL)

    def test_an_interrupted_cell_ends_soon(self):
        self.cell("x=1")
        for code in ("x=2; sleep 20", "x=2; while :; do :; done", "x=2; trap '' INT; while :; do sleep 0.1; done"):
            began = time.monotonic()
            interrupt_after(0.2)
            self.cell(code)
            self.assertEqual((self.answer["status"], self.code()), ("error", 130))
            self.assertLess(time.monotonic() - began, 2)
            self.assertEqual(self.cell("echo $x"), "1\n")

    def test_what_python_sets_in_its_environment_is_seen(self):
        self.cell("mine=1; export shared=bash")
        os.environ["redoma_test"] = "it's\nset"
        self.addCleanup(os.environ.pop, "redoma_test", None)
        self.assertEqual(self.cell('echo "$redoma_test $mine $shared"; unset redoma_test'), "it's\nset 1 bash\n")
        self.assertEqual(self.cell('echo "${redoma_test-none}"'), "none\n")

    def test_strange_code_is_just_code(self):
        self.assertEqual(self.cell(""), "")
        self.assertEqual(self.cell("echo a\r\necho b\r\n"), "a\nb\n")
        self.assertEqual(self.cell("echo a\0b\ud800"), "ab?\n")
        self.assertEqual(self.cell("cat <<X\nno end"), self.printed)
        self.assertIn("no end", self.printed)
        self.assertEqual(self.cell("echo tail \\"), "tail\n")
        self.assertEqual(self.cell("# only a comment"), "")
        self.assertEqual(self.cell("echo 'x" + "y" * 300000 + "' | wc -c"), "300002\n")

    def test_its_own_folder_may_go(self):
        self.cell("x=1")
        shutil.rmtree(self.shell.own_folder)
        self.assertEqual(self.cell("echo $x"), "1\n")

    def test_a_lost_exit_code_is_made_up_for(self):
        old = signal.signal(signal.SIGCHLD, signal.SIG_IGN)
        try:
            self.cell("x=1; exit 7")
        finally:
            signal.signal(signal.SIGCHLD, old)
        self.assertEqual(self.code(), 7)
        self.assertEqual(self.cell("echo $x"), "1\n")

    def test_no_bash_is_said(self):
        answer = redoma_shell.Shell(self.workspace, program="/nonexistent/bash").run("echo")
        self.assertEqual((answer["status"], answer["exit_code"]), ("error", 126))

    def test_children_get_one_file_more_at_most(self):
        own = len(os.listdir("/proc/self/fd"))
        seen = self.cell("ls /proc/self/fd").split()
        self.assertNotIn("197", seen)
        self.assertNotIn("198", seen)
        self.assertEqual(len(os.listdir("/proc/self/fd")), own)
