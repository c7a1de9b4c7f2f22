# claim: no chain of `..` leads out of the sandbox's root
# weaken: canary,landlock
canary=$1
up=..
for _ in $(seq 60); do up=$up/..; done
cd /mnt/data && mkdir -p a/b/c
for start in . a/b/c /tmp /proc/self/cwd /proc/self/root /opt/python/lib /dev/shm; do
  if content=$(cat "$start/$up$canary/secret.txt" 2>&1); then
    echo "ESCAPED: from $start: $content"
  else
    echo "refused from $start"
  fi
done
echo CONTAINED
