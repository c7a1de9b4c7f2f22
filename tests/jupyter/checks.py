"""What the suites in this folder share: named checks, run one after the other, each told as one line."""

import argparse
import inspect
import sys
import time
import traceback


class Skip(Exception):
    """This check does not apply to this server, or not with these options."""


def arguments(what, *more):
    """The command line that all suites have; `more` are (name, options) of further arguments."""
    parser = argparse.ArgumentParser(description=what)
    parser.add_argument("url", help="where the Jupyter API is served, e.g. http://127.0.0.1:8000/jupyter")
    parser.add_argument("token")
    parser.add_argument("--reference", action="store_true", help="the server is the original one of reference.sh")
    parser.add_argument("--only", metavar="WORDS", help="run only the checks whose names hold these words")
    for name, options in more:
        parser.add_argument(name, **options)
    return parser.parse_args()


def expect(true, *otherwise):
    """Like `assert`, but always on and with what was seen, shortened."""
    if not true:
        raise AssertionError(" ".join(short(part) for part in otherwise) or "not so")


def short(value, most=400):
    text = value if isinstance(value, str) else repr(value)
    return text if len(text) <= most else f"{text[: most // 2]} … {text[-most // 2 :]} ({len(text)} characters)"


class Suite:
    def __init__(self, options):
        self.options = options
        self.checks = []

    def check(self, name, original=None):
        """Registers a check. `original` says why the original server fails it, if it does."""

        def register(function):
            self.checks.append((name, function, original))
            return function

        return register

    def note(self, text):
        print(f"   {text}", flush=True)

    def run(self):
        """Runs all checks; gives the exit code."""
        started = time.monotonic()
        passed = failed = known = skipped = 0
        for name, function, original in self.checks:
            if self.options.only and self.options.only not in name:
                continue
            began = time.monotonic()
            try:
                result = function()
                if inspect.iscoroutine(result):
                    import asyncio

                    asyncio.run(result)
            except Skip as why:
                skipped += 1
                print(f"ok {name} (skipped: {why})", flush=True)
                continue
            except KeyboardInterrupt:
                raise
            except BaseException as error:  # noqa: BLE001 (also what a client raises to leave the program)
                why = str(error) if isinstance(error, AssertionError) else "".join(
                    traceback.format_exception_only(error)
                ).strip()
                why = short(why.replace("\n", "\\n"), 700)
                if self.options.reference and original:
                    known += 1
                    print(f"ok {name} (known to fail there: {original}; seen: {short(why, 160)})", flush=True)
                else:
                    failed += 1
                    print(f"FAILED {name}: {why}", flush=True)
                continue
            passed += 1
            surprise = " (the original was thought to fail this)" if self.options.reference and original else ""
            print(f"ok {name} [{time.monotonic() - began:.1f} s]{surprise}", flush=True)
        extra = f", {known} known to fail there" if known else ""
        extra += f", {skipped} skipped" if skipped else ""
        if passed + failed + known + skipped == 0:
            failed = 1
            print("FAILED no check has such a name")
        print(f"took {time.monotonic() - started:.1f} s{extra}")
        print(f"{passed} passed, {failed} failed", flush=True)
        return 1 if failed else 0


def main(suite):
    code = suite.run()
    sys.stdout.flush()
    sys.exit(code)
