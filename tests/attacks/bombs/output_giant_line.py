# claim: of a single line longer than the output limit the two ends are kept, and the report says so
# weaken: limits
# flags: --output 128KiB
# hits: output
import sys

sys.stdout.write("x" * (512 << 10))
print("CONTAINED")
