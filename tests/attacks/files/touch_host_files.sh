# claim: times, modes and owners of host files stay as they are
# weaken: canary,read_only
canary=$1
for path in "$canary/secret.txt" "$canary" /usr/bin/env /etc/passwd /opt/python /dev/null; do
  [ -e "$path" ] || { echo "not there: $path"; continue; }
  touch "$path" 2>/dev/null && echo "ESCAPED: new time for $path"
  chmod 0777 "$path" 2>/dev/null && echo "ESCAPED: new mode for $path"
  chown 1000:1000 "$path" 2>/dev/null && echo "ESCAPED: new owner for $path"
  echo "tried $path"
done
echo CONTAINED
