# claim: of the host's folders only the runtime's are there: no /root, /var, /run, /sys, /boot, no homes, no host's /etc
# weaken: canary
for path in /root /var /run /sys /boot /srv /media /lost+found /work /snap /.dockerenv /.redoma /old /oldroot \
  /etc/shadow /etc/ssh /etc/ssl/private /etc/sudoers /etc/fstab /etc/crontab /etc/resolvconf /etc/apt /etc/cron.d /etc/systemd; do
  if [ -e "$path" ]; then echo "ESCAPED: $path is there"; else echo "not there: $path"; fi
done
[ "$(ls -A /home)" = sandbox ] || echo "ESCAPED: /home has" /home/*
[ -z "$(ls -A /usr/local)" ] || echo "/usr/local has" /usr/local/*
echo CONTAINED
