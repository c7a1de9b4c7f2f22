# claim: background jobs with nohup, setsid and disown end with the program
# weaken: kill
nohup sleep 15 > /dev/null 2>&1 &
setsid --fork sleep 15 > /dev/null 2>&1
( ( trap '' HUP TERM INT; sleep 15 ) & )
disown -a
echo CONTAINED
