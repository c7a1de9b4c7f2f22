# claim: programs left behind with set-id and sticky bits, or as links to the host's, come out as plain files
# weaken: harvest
cp /usr/bin/env mine && chmod 6777 mine
mkdir sticky && chmod 7777 sticky && cp mine sticky/ && chmod 6777 sticky/mine
ln -s "$1/secret.txt" sticky/link
echo CONTAINED
