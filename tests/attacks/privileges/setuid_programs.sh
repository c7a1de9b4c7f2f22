# claim: programs of the host that run as root (set-user-id, or with file capabilities) gain nothing here
# weaken: capabilities,landlock
before=$(id)
mkfifo /tmp/silence
exec 9<>/tmp/silence
found=0
programs=$(find /usr/bin /usr/sbin /usr/lib -maxdepth 2 -perm /6000 -type f 2>/dev/null)
for program in $programs /usr/bin/ping /usr/bin/sudo; do
    [ -x "$program" ] || continue
    found=$((found + 1))
    # What it is while it waits for input that never comes.
    "$program" <&9 >/dev/null 2>&1 &
    disown $!
    sleep 0.03
    ids=$(grep -E '^(Uid|Gid|CapPrm|CapEff):' "/proc/$!/status" 2>/dev/null | tr -s '\t\n' ' ')
    case $ids in
    "" | "Uid: 1000 1000 1000 1000 Gid: 1000 1000 1000 1000 CapPrm: 0000000000000000 CapEff: 0000000000000000 ") ;;
    *) echo "ESCAPED: $program runs with $ids" ;;
    esac
    kill -9 $! 2>/dev/null
done
echo "tried $found"
# What would make them work: exec that may add rights, a mount that honours the bits.
grep -q '^NoNewPrivs:.1' /proc/self/status || echo "ESCAPED: exec may add rights"
awk '$6 !~ /(^|,)nosuid(,|$)/ { print "ESCAPED: honours set-user-id:", $0 }' /proc/self/mountinfo
cp /usr/bin/id ./id && chmod 6777 ./id
[ "$(./id)" = "$before" ] || echo "ESCAPED: $(./id)"
su -c id </dev/null 2>&1 | grep -q uid=0 && echo "ESCAPED: su"
echo CONTAINED
