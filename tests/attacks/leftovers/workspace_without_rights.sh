# claim: a workspace that the program has locked up is collected all the same
# weaken: harvest
ln -s "$1/secret.txt" link
echo harmless > result
chmod 000 /mnt/data
echo CONTAINED
