# claim: the host's own administration tools get nowhere
# weaken: seccomp
try() {
    if timeout 5 "$@" >/dev/null 2>&1; then echo "ESCAPED: $*"; else echo "refused: $*"; fi
}
mkdir /tmp/place
echo text >/tmp/file
try setarch --addr-no-randomize true
try linux32 true
try ionice -c 2 -n 0 true
try dmesg
try mount -t tmpfs none /tmp/place
try mount --bind /tmp /tmp/place
try umount /tmp/place
try swapon /tmp/file
try losetup --find /tmp/file
try chattr +i /tmp/file
try mknod /tmp/zero c 1 5
try ip link show
echo CONTAINED
