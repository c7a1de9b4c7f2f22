# claim: a grandchild that holds stdout and stderr open does not keep the run from ending at once
# weaken: kill
# flags: --wall 3s
( sleep 15 & )
echo CONTAINED
