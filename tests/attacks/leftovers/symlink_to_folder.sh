# claim: a symbolic link to a host folder is not entered, neither itself nor on the way of another
# weaken: harvest
canary=$1
ln -s "$canary" results
ln -s / everything
ln -s results/secret.txt through-a-link
ln -s "everything$canary/secret.txt" through-the-root
mkdir folder && ln -s ../results folder/up
echo CONTAINED
