# claim: no process in /proc has the host's environment in its own
# weaken: environment
for file in /proc/[0-9]*/environ /proc/1/environ /proc/self/environ /proc/$PPID/environ /proc/[0-9]*/task/*/environ; do
  if found=$(tr '\0' '\n' < "$file" 2>/dev/null | grep -a SECRET); then
    echo "ESCAPED: $file: $found"
  else
    echo "nothing in $file"
  fi
done
echo CONTAINED
