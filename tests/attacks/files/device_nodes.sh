# claim: no device node can be made, and none of the host's disks, memory or log is in /dev
# weaken: seccomp,landlock
# The last one, 0:0, opens nothing, but is the one that the kernel itself would let anybody make.
while read -r kind major minor; do
  for folder in /mnt/data /tmp /dev/shm; do
    if mknod "$folder/node" $kind $major $minor 2>/dev/null; then
      echo "ESCAPED: made $kind $major:$minor in $folder"
      head -c 16 "$folder/node" 2>/dev/null | od -c | head -1
      rm -f "$folder/node"
    else
      echo "refused: $kind $major:$minor in $folder"
    fi
  done
done <<'NODES'
b 8 0
b 254 0
b 259 0
b 7 0
c 1 1
c 1 4
c 1 11
c 5 1
c 10 229
c 0 0
NODES
for name in vda sda nvme0n1 dm-0 loop0 mem port kmsg kvm fuse loop-control console tty tty0 net/tun mapper/control vhost-net; do
  [ -e "/dev/$name" ] && echo "ESCAPED: /dev/$name is there"
done
[ -n "$(find /dev -type b)" ] && echo "ESCAPED: block devices in /dev"
echo CONTAINED
