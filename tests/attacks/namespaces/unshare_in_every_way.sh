# claim: no tool of the host makes a namespace, and no chroot
# weaken: seccomp,forbid_namespaces,landlock
try() {
    if timeout 5 "$@" >/dev/null 2>&1; then echo "ESCAPED: $*"; else echo "refused: $*"; fi
}
for kind in user mount uts ipc net pid cgroup time; do
    try unshare "--$kind" --fork true
    try unshare --user --map-root-user "--$kind" --fork true
done
try nsenter --target 1 --all true
try nsenter --target $$ --user true
try chroot / true
try unshare --user --map-root-user chroot /tmp true
try unshare --user --map-root-user --mount-proc --fork --pid true
try setpriv --no-new-privs --bounding-set=-all --reuid=0 true
echo CONTAINED
