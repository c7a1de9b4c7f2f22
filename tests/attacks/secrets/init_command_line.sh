# claim: how redoma was called on the host, in the command line of the sandbox's init, can't be read
# weaken: hidepid
for file in /proc/1/cmdline /proc/$PPID/cmdline /proc/1/comm /proc/1/stat /proc/1/mountinfo /proc/1/limits; do
  if content=$(tr '\0' ' ' < "$file" 2>/dev/null) && [ -n "$content" ]; then
    echo "ESCAPED: $file: ${content:0:200}"
  else
    echo "refused: $file"
  fi
done
echo CONTAINED
