# claim: a crash can't start the host's core dump handler, which runs as root outside of every limit
# weaken: rlimits
# Where core_pattern is a pipe the kernel looks past RLIMIT_CORE, but for one value: 1 means none. 0 means unlimited.
import resource
soft, hard = resource.getrlimit(resource.RLIMIT_CORE)
if soft != 1:
    print("ESCAPED: a crash now would be handed to the host's handler, limit", soft, hard)
for limits in ((0, hard), (0, 0), (hard, hard)):
    try:
        resource.setrlimit(resource.RLIMIT_CORE, limits)
    except (OSError, ValueError) as error:
        print("refused:", limits, error)
    if resource.getrlimit(resource.RLIMIT_CORE)[0] != 1:
        print("ESCAPED: the limit can be changed to", limits)
print("CONTAINED")
