# claim: nothing can be made outside of the writable folders
# weaken: read_only,landlock
for folder in / /usr /usr/bin /usr/lib /usr/local /usr/local/bin /etc /opt /opt/python /opt/python/bin /mnt /home /dev /dev/pts /proc /proc/sys /bin/ /lib/ /lib64/; do
  if (: > "$folder/redoma-attack") 2>/dev/null; then
    echo "ESCAPED: made a file in $folder"
    rm "$folder/redoma-attack"
  elif mkdir "$folder/redoma-attack" 2>/dev/null; then
    echo "ESCAPED: made a folder in $folder"
    rmdir "$folder/redoma-attack"
  else
    echo "refused: $folder"
  fi
done
echo CONTAINED
